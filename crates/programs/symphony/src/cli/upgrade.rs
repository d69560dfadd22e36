//! `symphony upgrade`.

use clap::{Args, Subcommand};

use super::{ClusterArgs, FederationArgs, OperationArgs, Output};

#[derive(Debug, Subcommand)]
pub(crate) enum UpgradeCommand {
    /// Show whether an upgrade can be finished, and which processes are still of an older release.
    Show(UpgradeShowArgs),
    /// Have the cluster write by the newest level, once every process knows it. It cannot be taken back: older releases
    /// can join no more.
    Finish(UpgradeFinishArgs),
}

#[derive(Debug, Args)]
pub(crate) struct UpgradeShowArgs {
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UpgradeFinishArgs {
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}
