//! Counts what became of every accepted request: accepted = in time + late + dropped + failed + cancelled + in flight
//! (invariant S3).

use std::sync::atomic::{AtomicU64, Ordering};

use symphony_types::Outcome;

/// The counts; they only grow, but for `in_flight`.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    accepted: AtomicU64,
    in_time: AtomicU64,
    late: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    results: AtomicU64,
    discarded: AtomicU64,
    redriven: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LedgerCounts {
    /// Requests accepted.
    pub accepted: u64,
    /// Answered by their deadline.
    pub in_time: u64,
    /// Answered after it.
    pub late: u64,
    /// Given up by the scheduler.
    pub dropped: u64,
    /// Ended by an error.
    pub failed: u64,
    /// Withdrawn by their clients.
    pub cancelled: u64,
    /// Results that came, those that were discarded included.
    #[serde(default)]
    pub results: u64,
    /// Results that came for a request which had its outcome already: executed twice, or too late. Never delivered.
    pub discarded: u64,
    /// Requests announced again to a new leader.
    pub redriven: u64,
}

impl Ledger {
    pub(crate) fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::InTime => &self.in_time,
            Outcome::Late => &self.late,
            Outcome::Dropped(_) => &self.dropped,
            Outcome::Failed(_) => &self.failed,
            Outcome::Cancelled => &self.cancelled,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A result came; `first` if it ended its request.
    pub(crate) fn result(&self, first: bool) {
        self.results.fetch_add(1, Ordering::Relaxed);
        if !first {
            self.discarded.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn redrive(&self, requests: u64) {
        self.redriven.fetch_add(requests, Ordering::Relaxed);
    }

    /// The counts now. Taken while requests run, they may be off by those that end in the same moment.
    #[must_use]
    pub(crate) fn counts(&self) -> LedgerCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LedgerCounts {
            accepted: read(&self.accepted),
            in_time: read(&self.in_time),
            late: read(&self.late),
            dropped: read(&self.dropped),
            failed: read(&self.failed),
            cancelled: read(&self.cancelled),
            results: read(&self.results),
            discarded: read(&self.discarded),
            redriven: read(&self.redriven),
        }
    }
}

impl LedgerCounts {
    /// Requests that have an outcome.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.in_time + self.late + self.dropped + self.failed + self.cancelled
    }

    /// Share of the results that came after the outcome: executed twice, or too late to be of use. 0 if none came.
    #[must_use]
    pub fn duplicate_ratio(&self) -> f64 {
        if self.results == 0 { 0.0 } else { self.discarded as f64 / self.results as f64 }
    }

    /// The counts of two frontends, or of two boots, together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            accepted: self.accepted + other.accepted,
            in_time: self.in_time + other.in_time,
            late: self.late + other.late,
            dropped: self.dropped + other.dropped,
            failed: self.failed + other.failed,
            cancelled: self.cancelled + other.cancelled,
            results: self.results + other.results,
            discarded: self.discarded + other.discarded,
            redriven: self.redriven + other.redriven,
        }
    }

    /// Requests without an outcome although nothing is in flight any more: lost. Negative means that one ended twice.
    #[must_use]
    pub const fn lost(&self, in_flight: u64) -> i64 {
        self.accepted as i64 - self.ended() as i64 - in_flight as i64
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::{DropReason, FailReason};

    use super::*;

    #[test]
    fn every_outcome_has_its_place_and_a_missing_or_doubled_one_shows() {
        let ledger = Ledger::default();
        let outcomes = [
            Outcome::InTime,
            Outcome::Late,
            Outcome::Dropped(DropReason::QueueFull),
            Outcome::Failed(FailReason::NoAnswer),
            Outcome::Cancelled,
        ];
        for outcome in outcomes {
            ledger.accept();
            ledger.end(outcome);
        }
        assert_eq!(ledger.counts().lost(0), 0);
        // S3, planted: one without an outcome, then one with two.
        ledger.accept();
        assert_eq!((ledger.counts().lost(1), ledger.counts().lost(0)), (0, 1));
        ledger.end(Outcome::InTime);
        ledger.end(Outcome::Late);
        assert_eq!(ledger.counts().lost(0), -1);
        let both = ledger.counts().plus(ledger.counts());
        assert_eq!((both.accepted, both.ended(), both.lost(0)), (12, 14, -2));
    }

    #[test]
    fn results_after_the_outcome_are_a_share_of_all() {
        let ledger = Ledger::default();
        assert!(ledger.counts().duplicate_ratio().abs() < f64::EPSILON);
        for first in [true, true, true, false] {
            ledger.result(first);
        }
        assert!((ledger.counts().duplicate_ratio() - 0.25).abs() < f64::EPSILON);
    }
}
