//! Failures and recoveries of GPUs.

use symphony_types::{GpuId, Time};
use symphony_workload::Failure;

/// A change of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It fails.
    Down(GpuId),
    /// It recovers.
    Up(GpuId),
}

/// The remaining changes.
#[derive(Clone, Debug)]
pub(crate) struct Failures {
    /// In reverse order of time.
    changes: Vec<(Time, Change)>,
}

impl Failures {
    pub(crate) fn new(failures: &[Failure]) -> Self {
        let both =
            |failure: &Failure| [(failure.at, Change::Down(failure.gpu)), (failure.until, Change::Up(failure.gpu))];
        let mut changes: Vec<_> = failures.iter().flat_map(both).filter(|(at, _)| *at < Time::NEVER).collect();
        // Stable: changes of one instant keep the order of the scenario.
        changes.sort_by_key(|&(at, _)| std::cmp::Reverse(at));
        Self { changes }
    }

    /// Time of the next change; [`Time::NEVER`] if there is none.
    #[inline]
    pub(crate) fn next(&self) -> Time {
        self.changes.last().map_or(Time::NEVER, |&(at, _)| at)
    }

    /// The next change.
    pub(crate) fn take(&mut self) -> Option<Change> {
        self.changes.pop().map(|(_, change)| change)
    }
}
