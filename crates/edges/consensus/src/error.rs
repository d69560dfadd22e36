//! What can go wrong, for those who have to decide what to do about it.

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
        /// What the system said.
        source: io::Error,
    },
    /// The directory holds another node's or another cluster's data.
    #[error(
        "{place} belongs to node {found_node} of cluster \"{found_cluster}\": start that node, or give this one its own directory"
    )]
    ForeignDisk {
        /// The directory.
        place: String,
        /// Whose it is.
        found_node: u64,
        /// Of which cluster.
        found_cluster: String,
    },
    /// The directory holds another engine's log.
    #[error(
        "the log in {place} is {found}'s, this node is told to use {configured}: tell it {found}, or remove it from the group and add it under a new id with an empty directory"
    )]
    OtherEngine {
        /// The directory.
        place: String,
        /// Whose log it is.
        found: &'static str,
        /// Who was to open it.
        configured: &'static str,
    },
    /// What may have been acknowledged cannot be read back. The node must not come back under its id with less.
    #[error("{place} is damaged at {what}: {reason}; remove this node from the group and add it under a new id")]
    Damaged {
        /// The directory.
        place: String,
        /// Which part.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The node found earlier that this directory has less than was acknowledged from it.
    #[error(
        "{place} is an older copy of itself, or the disk lost what it had synced: what was acknowledged from it is forgotten; give the replica a new id (symphony members replace) and an empty directory"
    )]
    Forgotten {
        /// The directory.
        place: String,
    },
    /// The Raft library refused.
    #[error("control group does not start: {0}")]
    Raft(String),
}

/// Why a proposal was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another replica leads, if any is known: propose there. The command was not taken.
    #[error("this node does not lead; leader: {leader:?}")]
    NotLeader {
        /// The leader that this node follows.
        leader: Option<NodeId>,
    },
    /// This node leads but has heard from no quorum for a lease, nor in the lease that it waited since. The command was
    /// not taken.
    #[error("this leader has no quorum")]
    NoQuorum,
    /// No quorum answered in time. **The outcome is unknown**: the command may still be committed.
    #[error("no quorum took the command within {waited:?}; it may still be committed")]
    Timeout {
        /// How long was waited.
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
    /// This node's part of the group has ended.
    #[error("control group node has stopped")]
    Stopped,
}

/// Why a linearizable read is not possible.
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
        /// How long was waited.
        waited: Duration,
    },
    /// This node's part of the group has ended.
    #[error("control group node has stopped")]
    Stopped,
}

/// Why the membership was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// The change itself makes no sense.
    #[error("membership change: {0}")]
    Refused(String),
    /// It could not be agreed upon.
    #[error(transparent)]
    Propose(#[from] ProposeError),
}
