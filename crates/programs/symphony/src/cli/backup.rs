//! `symphony backup`, `restore`.

use std::path::PathBuf;

use clap::Args;

use super::{ClusterArgs, FederationArgs, NodeArgs, Output};

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// Write the backup to this file, atomically. `-` is standard output.
    #[arg(long, value_name = "FILE", required_unless_present = "show")]
    pub(crate) to: Option<PathBuf>,
    /// Back up the state of any one replica, even if it is cut off from the others.
    #[arg(long, requires = "to")]
    pub(crate) stale: bool,
    /// Check a backup instead and show its contents, without a cluster. `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["to", "stale", "federation"])]
    pub(crate) show: Option<PathBuf>,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The backup. `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) from: PathBuf,
    /// Configuration of the replica that founds the cluster anew: its scheduler.data_dir must be empty or missing. The
    /// other replicas of cluster.scheduler start with empty directories. With a backup of a federation: the same for
    /// federation.data_dir and federation.replica.
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}
