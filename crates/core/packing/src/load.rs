//! `ScheduleSaturate`: a session's whole GPUs, and its residue.

use symphony_types::{LatencyProfile, Nanos};

use crate::node::{PackedNode, PackedSession};
use crate::session::Session;

/// Rounding error that is tolerated in a product that should be an integer.
pub(crate) const ROUNDING: f64 = 1e-9;
/// Half a nanosecond in seconds: the rounding of a duty cycle.
pub(crate) const DUTY_ROUNDING_S: f64 = 0.5e-9;

/// A residual load as Algorithm 1 carries it: ⟨b, d, occ⟩ of one session alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Residue {
    pub(crate) packed: PackedSession,
    pub(crate) duty: Nanos,
    pub(crate) occupancy: f64,
}

/// A session's load.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// How many GPUs it fills.
    pub(crate) whole: u64,
    /// Such a GPU.
    pub(crate) full: PackedNode,
    /// What is left.
    pub(crate) residue: Option<Residue>,
}

impl Load {
    /// Of the session with this index.
    pub(crate) fn of(index: usize, session: &Session<'_>) -> Self {
        let batch = saturating_batch(session);
        let duty = session.profile.latency(batch);
        let throughput = f64::from(batch) / duty.as_secs_f64();
        let packed = PackedSession { session: index, batch, rate_per_second: throughput };
        let full = PackedNode { duty, sessions: vec![packed], occupancy: 1.0 };
        // A rate that is not a number counts as zero.
        let wanted = session.rate_per_second.max(0.0);
        let whole = (wanted / throughput + ROUNDING).floor();
        let rate = wanted - whole * throughput;
        let residue = (rate > throughput * ROUNDING).then(|| Residue::of(index, session, rate));
        Self { whole: whole as u64, full, residue }
    }
}

impl Residue {
    /// A session alone on a GPU, at a rate that does not fill it, in items per second.
    pub(crate) fn of(index: usize, session: &Session<'_>, rate: f64) -> Self {
        let profile = session.profile;
        let gathering = |batch: u32| Nanos::from_secs_f64(f64::from(batch) / rate);
        // The largest b with ℓ(b) + b/r ≤ L.
        let full = largest_batch(profile, |batch| gathering(batch) + profile.latency(batch) <= session.slo);
        let (batch, duty) = if full > 0 && profile.latency(full) <= gathering(full) {
            (full, gathering(full))
        } else {
            // Too seldom for one item, or too often for batches so small: one more, in the longest duty cycle, which
            // does not fill it.
            let batch = (full + 1).min(saturating_batch(session));
            (batch, gathering(batch).min(session.slo - profile.latency(batch)))
        };
        let packed = PackedSession { session: index, batch, rate_per_second: rate };
        Self { packed, duty, occupancy: share(profile.latency(batch), duty) }
    }

    /// On a GPU of its own.
    pub(crate) fn alone(self) -> PackedNode {
        PackedNode { duty: self.duty, sessions: vec![self.packed], occupancy: self.occupancy }
    }
}

/// How many nodes sessions need if none shares any; a packing has no more. Takes time by sessions, not by nodes.
#[must_use]
pub fn nodes_at_most(sessions: &[Session<'_>]) -> f64 {
    let alone = |session: &Session<'_>| {
        let load = Load::of(0, session);
        load.whole as f64 + f64::from(u8::from(load.residue.is_some()))
    };
    sessions.iter().map(alone).sum()
}

/// B: the largest batch that runs twice within the SLO; a single item if none does.
fn saturating_batch(session: &Session<'_>) -> u32 {
    let profile = session.profile;
    largest_batch(profile, |batch| profile.latency(batch).saturating_mul(2) <= session.slo).max(1)
}

/// The largest batch that fits, zero if none does. `fits` must hold for a prefix of 1, 2, …
fn largest_batch(profile: &LatencyProfile, fits: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, profile.batch_max() + 1);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

/// The share of a duty cycle with execution.
pub(crate) fn share(busy: Nanos, duty: Nanos) -> f64 {
    busy.as_secs_f64() / duty.as_secs_f64().max(ROUNDING)
}
