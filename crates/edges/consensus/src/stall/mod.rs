//! A leader whose disk hangs must not go on leading.
//!
//! A hung disk is not a failed one: no call returns an error, heartbeats go out from memory, followers stay loyal, and
//! with a quorum among them entries are even committed, until the queue to the writer is full and nothing moves any
//! more under a leader that looks alive. So a leader that waits too long for one write hands over, and keeps quiet if
//! that does not help.

mod decision;
mod watch;

pub(crate) use watch::StallWatch;
