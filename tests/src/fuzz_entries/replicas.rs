//! What the replicas of a control group send each other.

use symphony_consensus::fuzz as raft;
use symphony_control_plane::fuzz as beating;

pub(super) use beating::beats_seeds;
pub(super) use raft::{raft_message_seeds, raft_snapshot_seeds};

/// An append, a vote, a hand-over, or the answer to one: what reaches the Raft core is what was sent, and meant for it.
pub fn raft_message(bytes: &[u8]) {
    let _ = raft::raft_message(bytes);
}

/// A snapshot, as an image or as the parts in which it travels: refused, or one that can be laid out again.
pub fn raft_snapshot(bytes: &[u8]) {
    let _ = raft::raft_snapshot(bytes);
}

/// Beats as a leader hears them, and acknowledgements as who beats does.
pub fn beats(bytes: &[u8]) {
    let _ = beating::beats(bytes);
}
