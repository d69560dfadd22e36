//! What a packing consists of.

use symphony_types::Nanos;

/// A session's share of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackedSession {
    /// Index of the session.
    pub session: usize,
    /// Its batch size in each duty cycle.
    pub batch: u32,
    /// The rate that it sends here, in items per second.
    pub rate_per_second: f64,
}

/// A GPU that runs one batch of each of its sessions in turn.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedNode {
    /// The duty cycle: the period in which each session runs once.
    pub duty: Nanos,
    /// The sessions whose batches it runs, one after the other.
    pub sessions: Vec<PackedSession>,
    /// Occupancy: the share of the duty cycle with execution.
    pub occupancy: f64,
}

impl PackedNode {
    /// Whether a session has a place here.
    #[must_use]
    pub fn runs(&self, session: usize) -> bool {
        self.sessions.iter().any(|packed| packed.session == session)
    }
}
