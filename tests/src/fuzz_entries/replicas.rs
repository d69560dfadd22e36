//! Messages between the replicas of a control group.

use symphony_consensus::fuzz as raft;
use symphony_control_plane::fuzz as failure_detection;

pub(super) use failure_detection::heartbeats_seeds;
pub(super) use raft::{raft_message_seeds, raft_snapshot_seeds};

/// An append, a vote, a hand-over, or an answer: the Raft core gets exactly what was sent, and only if it is addressed
/// to it.
pub fn raft_message(bytes: &[u8]) {
    let _ = raft::raft_message(bytes);
}

/// A snapshot, as an image or as the parts in which it travels: refused, or one that can be laid out again.
pub fn raft_snapshot(bytes: &[u8]) {
    let _ = raft::raft_snapshot(bytes);
}

/// Heartbeats at a leader, and acknowledgements at a sender.
pub fn heartbeats(bytes: &[u8]) {
    let _ = failure_detection::heartbeats(bytes);
}
