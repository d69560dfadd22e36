//! `symphony drain`, `cordon`, `uncordon`, `members`.

use clap::{Args, Subcommand};

use super::{ClusterArgs, OperationArgs};

#[derive(Debug, Args)]
pub(crate) struct DutyArgs {
    /// The process: a scheduler as n2 or scheduler-2, a backend or frontend by its name or as b1 or f1; see
    /// `symphony get members`.
    #[arg(value_name = "MEMBER")]
    pub(crate) member: String,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) duty: DutyArgs,
    /// Seconds to wait until nothing is left; 0 does not wait. It stays cordoned in any case.
    #[arg(long, default_value_t = 60)]
    pub(crate) wait_s: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MembersCommand {
    /// Add a scheduler replica that runs with scheduler.join = true: it catches up, then becomes a voter.
    Add(MemberAddArgs),
    /// Remove a scheduler replica: it hands over what it leads, and its id is never used again. Or remove a cordoned
    /// frontend from the cluster's records.
    Remove(MemberRemoveArgs),
    /// Replace a scheduler replica, dead or alive, by a new one in one membership change.
    Replace(MemberReplaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MemberAddArgs {
    /// Its id, never used before, such as 4 or n4.
    #[arg(value_parser = replica_id)]
    pub(crate) id: u64,
    /// Its control address: its cluster.scheduler.control.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) control: String,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MemberRemoveArgs {
    /// A scheduler by its id, as 2, n2 or scheduler-2; a frontend by its name or as f1. See `symphony get members`.
    #[arg(value_name = "MEMBER")]
    pub(crate) member: String,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MemberReplaceArgs {
    /// The id of the replica to remove, such as 2 or n2.
    #[arg(value_parser = replica_id)]
    pub(crate) id: u64,
    /// The id of the new replica, never used before.
    #[arg(long, value_name = "ID", value_parser = replica_id)]
    pub(crate) with: u64,
    /// The control address of the new replica.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) control: String,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// The id of a replica as commands are given it and as tables, logs and certificates have it: `2`, `n2` or
/// `scheduler-2`.
pub(crate) fn replica_id(text: &str) -> Result<u64, String> {
    let number = ["scheduler-", "n", ""].iter().find_map(|before| text.strip_prefix(before)?.parse().ok());
    number.filter(|&id| id > 0).ok_or_else(|| "expected the id of a scheduler replica, as 2 or n2".to_owned())
}
