//! Makes a leader with a hung disk stop leading.
//!
//! A hung disk is not a failed one: no call returns an error, heartbeats are sent from memory, followers stay loyal,
//! and with a quorum among them entries are even committed. Then the queue to the writer is full, and nothing moves
//! any more under a leader that looks alive. So a leader that waits too long for one write hands over, and falls
//! silent if that does not help.

mod decision;
mod watch;

pub(crate) use watch::StallWatch;
