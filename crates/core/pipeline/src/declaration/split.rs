//! The split on which a cluster has agreed.

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{Finite, Nanos};

/// The budgets by which all frontends run a pipeline, and what they were found from.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct CommittedSplit {
    /// The budget of each stage, in the order of the declaration.
    pub budgets_ns: Vec<u64>,
    /// The time from a stage's result to the next stage's request.
    pub hop_ns: u64,
    /// γ by edge, in the order of [`Wiring::edges`](super::Wiring::edges).
    pub gammas: Vec<Finite>,
    /// Requests per second, in thousandths, as measured.
    pub rate_millirps: u64,
}

impl CommittedSplit {
    /// The budgets as durations.
    #[must_use]
    pub fn budgets(&self) -> Vec<Nanos> {
        self.budgets_ns.iter().map(|&ns| Nanos::new(ns)).collect()
    }

    /// The hop as a duration.
    #[must_use]
    pub const fn hop(&self) -> Nanos {
        Nanos::new(self.hop_ns)
    }
}
