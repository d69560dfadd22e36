//! `symphony apply`.

use std::path::PathBuf;

use clap::Args;
use symphony_repository::LOAD_WITHIN;

use super::ClusterArgs;

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// A file (.yaml, .yml or .toml), a folder of such files, or - for YAML from standard input; repeatable. Its format
    /// is in docs/operating/declared-models.md.
    #[arg(short = 'f', long = "file", value_name = "FILE|DIR|-", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Only print what would change.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Seconds to wait until a model is ready.
    #[arg(long, default_value_t = LOAD_WITHIN.as_secs(), value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) wait_s: u64,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}
