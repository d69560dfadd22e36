//! What is packed.

use symphony_types::{LatencyProfile, Nanos};

/// The most sessions of a packing from outside: repacking compares each with each node, seconds at this size.
pub const SESSIONS_MAX: usize = 2000;
/// The most nodes of a packing from outside: 10 MB of them. A rate that needs more is most likely in the wrong unit.
pub const NODES_MAX: usize = 100_000;

/// A stream of requests for one model under one SLO.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    /// ℓ(b).
    pub profile: &'a LatencyProfile,
    /// L: the SLO, from arrival to answer.
    pub slo: Nanos,
    /// R: items per second.
    pub rate_per_second: f64,
}
