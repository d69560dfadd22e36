//! `symphony upgrade`.

use clap::{Args, Subcommand};

use super::{ClusterArgs, FederationArgs, OperationArgs, Output};

#[derive(Debug, Subcommand)]
pub(crate) enum UpgradeCommand {
    /// Show whether an upgrade can be finished, and which processes still run an older release.
    Show(UpgradeShowArgs),
    /// Raise the cluster to the newest level, once every process knows it. This cannot be undone: older releases can no
    /// longer join.
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
