//! The time from a stage's result to the header of a request that it leads to.

use std::time::Instant;

use prometheus_client::metrics::histogram::Histogram;

/// It has begun with a result.
#[derive(Clone, Debug)]
pub(crate) struct Hop {
    result_at: Instant,
    durations: Histogram,
}

impl Hop {
    pub(crate) const fn since(result_at: Instant, durations: Histogram) -> Self {
        Self { result_at, durations }
    }

    /// The header goes to a leader.
    pub(crate) fn announced(&self) {
        self.durations.observe(self.result_at.elapsed().as_secs_f64());
    }
}
