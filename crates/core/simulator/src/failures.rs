//! When GPUs fail and come back.

use symphony_types::{GpuId, Time};
use symphony_workload::Failure;

/// What happens to a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It fails.
    Down(GpuId),
    /// It is usable again.
    Up(GpuId),
}

/// The changes that are still to come.
#[derive(Clone, Debug)]
pub(crate) struct Failures {
    /// The last one comes first.
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

    /// When the next change comes; [`Time::NEVER`] if none does.
    #[inline]
    pub(crate) fn next(&self) -> Time {
        self.changes.last().map_or(Time::NEVER, |&(at, _)| at)
    }

    /// The next change.
    pub(crate) fn take(&mut self) -> Option<Change> {
        self.changes.pop().map(|(_, change)| change)
    }
}
