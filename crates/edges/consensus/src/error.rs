//! Errors of the control group, by the reaction that they need.

use std::io;
use std::time::Duration;

use symphony_types::NodeId;

/// Why a replica did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error("control group configuration: {0}")]
    Config(String),
    /// The disk failed, or another process holds the directory.
    #[error("control group storage in {place}: {source}")]
    Storage {
        /// The directory.
        place: String,
        /// The system's error.
        source: io::Error,
    },
    /// The directory holds another node's or another cluster's data.
    #[error(
        "{place} belongs to node {found_node} of cluster \"{found_cluster}\": start that node, or give this one its own directory"
    )]
    ForeignDisk {
        /// The directory.
        place: String,
        /// The node whose data it is.
        found_node: u64,
        /// The cluster of that node.
        found_cluster: String,
    },
    /// The directory holds another engine's log.
    #[error(
        "the log in {place} is {found}'s, this node is told to use {configured}: tell it {found}, or remove it from the group and add it under a new id with an empty directory"
    )]
    OtherEngine {
        /// The directory.
        place: String,
        /// The engine of the log.
        found: &'static str,
        /// The configured engine.
        configured: &'static str,
    },
    /// Data that may have been acknowledged cannot be read back. The node must not return under its id with less.
    #[error("{place} is damaged at {what}: {reason}; remove this node from the group and add it under a new id")]
    Damaged {
        /// The directory.
        place: String,
        /// The damaged part.
        what: String,
        /// The damage.
        reason: String,
    },
    /// It was found earlier that this directory lacks entries acknowledged from it.
    #[error(
        "{place} is an older copy of itself, or the disk lost what it had synced: what was acknowledged from it is forgotten; give the replica a new id (symphony members replace) and an empty directory"
    )]
    Forgotten {
        /// The directory.
        place: String,
    },
    /// A backup is restored only into an empty directory.
    #[error("{place} is not empty, and a backup is restored into an empty directory only: move away what is there")]
    NotEmpty {
        /// The directory.
        place: String,
    },
    /// A restore into this directory has failed, or still runs.
    #[error("a restore into {place} did not end: empty the directory, and restore the backup again")]
    RestoreUnfinished {
        /// The directory.
        place: String,
    },
    /// The Raft library refused.
    #[error("control group does not start: {0}")]
    Raft(String),
}

/// Why a proposal failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another replica leads, if any is known: propose there. The command was not taken.
    #[error("this node does not lead; leader: {leader:?}")]
    NotLeader {
        /// The leader that this node follows.
        leader: Option<NodeId>,
    },
    /// This node leads, but has heard from no quorum for a lease, nor in the lease that it has waited since. The
    /// command was not taken.
    #[error("this leader has no quorum")]
    NoQuorum,
    /// No quorum answered in time. **The outcome is unknown**: the command may still be committed.
    #[error("no quorum took the command within {waited:?}; it may still be committed")]
    Timeout {
        /// Time waited.
        waited: Duration,
    },
    /// The command is longer than the limit.
    #[error("command has {got} bytes, expected at most {max}")]
    TooLarge {
        /// Its length.
        got: usize,
        /// [`COMMAND_BYTES_MAX`](crate::COMMAND_BYTES_MAX).
        max: usize,
    },
    /// The command was discarded because leadership changed before a quorum had it.
    #[error("command was discarded by a change of leadership")]
    Discarded,
    /// This node has left the group or stopped.
    #[error("control group node has stopped")]
    Stopped,
}

/// Why a linearizable read is impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Another replica leads, if any is known: read there.
    #[error("this node does not lead; leader: {leader:?}")]
    NotLeader {
        /// The leader that this node follows.
        leader: Option<NodeId>,
    },
    /// No quorum confirmed this leader in time.
    #[error("no quorum confirmed this leader within {waited:?}")]
    NoQuorum {
        /// Time waited.
        waited: Duration,
    },
    /// This node has left the group or stopped.
    #[error("control group node has stopped")]
    Stopped,
}

/// Why the membership was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// The change is invalid.
    #[error("membership change: {0}")]
    Refused(String),
    /// It was not committed.
    #[error(transparent)]
    Propose(#[from] ProposeError),
}
