//! `symphony top`.

use clap::Args;

use super::{ClusterArgs, Output, PublicArgs};

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Show it once and exit, as also happens where the output is no terminal, and with -o json.
    #[arg(long)]
    pub(crate) once: bool,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    /// Seconds over which rates and shares are averaged; at least 2, since leaders report every second.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..=60))]
    pub(crate) over_s: u64,
    #[command(flatten)]
    pub(crate) public: PublicArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}
