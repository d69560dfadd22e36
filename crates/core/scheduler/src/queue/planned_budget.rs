//! The budget that batches are planned for: the SLO, or what all arriving requests have instead.

use std::mem;

use symphony_types::Nanos;

use crate::meters::rate_meter::BUCKETS;

/// Budgets are forgotten after this many updates, and before twice as many: the buckets of the rate meter.
const UPDATES: u32 = BUCKETS as u32;
/// Closer to the SLO than the SLO over this is the SLO: requests lose some of it on their way to the queue.
const SAME: u64 = 16;

/// The SLO, moved to the nearest budget (the time from arrival to deadline) that recent requests have, in fixed memory:
/// where all have less, the longest of theirs; where all have more, the shortest. Where only some have another budget
/// it is the SLO, so that one client's deadlines change nothing for the others.
#[derive(Clone, Debug)]
pub(crate) struct PlannedBudget {
    slo: Nanos,
    /// As of the last update.
    budget: Nanos,
    recent: Range,
    /// Of the period before.
    former: Range,
    updates: u32,
}

/// The shortest and the longest budget of a period.
#[derive(Clone, Copy, Debug)]
struct Range {
    shortest: Nanos,
    longest: Nanos,
}

impl Range {
    const EMPTY: Self = Self { shortest: Nanos::MAX, longest: Nanos::ZERO };
}

impl PlannedBudget {
    /// The SLO, until requests are seen to have another budget.
    pub(crate) const fn of(slo: Nanos) -> Self {
        Self { slo, budget: slo, recent: Range::EMPTY, former: Range::EMPTY, updates: 0 }
    }

    #[inline]
    pub(crate) const fn get(&self) -> Nanos {
        self.budget
    }

    /// Records the time from a request's arrival to its deadline.
    #[inline]
    pub(crate) fn record(&mut self, budget: Nanos) {
        self.recent.shortest = self.recent.shortest.min(budget);
        self.recent.longest = self.recent.longest.max(budget);
    }

    /// Goes by what was recorded; returns whether the budget has changed. Called with each bucket of the rate meter.
    pub(crate) fn update(&mut self) -> bool {
        self.updates += 1;
        if self.updates > UPDATES {
            (self.former, self.recent, self.updates) = (mem::replace(&mut self.recent, Range::EMPTY), Range::EMPTY, 1);
        }
        let shortest = self.recent.shortest.min(self.former.shortest);
        let longest = self.recent.longest.max(self.former.longest);
        let is_known = shortest <= longest;
        let nearest = if is_known { self.slo.clamp(shortest, longest) } else { self.slo };
        let is_same = nearest.get().abs_diff(self.slo.get()) <= self.slo.get() / SAME;
        let budget = if is_same { self.slo } else { nearest };
        mem::replace(&mut self.budget, budget) != budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLO: Nanos = Nanos::from_millis(80);

    fn ms(budgets: impl IntoIterator<Item = u64>) -> Nanos {
        let mut planned = PlannedBudget::of(SLO);
        budgets.into_iter().for_each(|budget| planned.record(Nanos::from_millis(budget)));
        planned.update();
        planned.get()
    }

    #[test]
    fn it_is_the_slo_unless_all_requests_have_less_or_all_have_more() {
        assert_eq!(ms([]), SLO);
        assert_eq!(ms((0..100).map(|n| 80 - n % 6)), SLO, "what requests lose on their way");
        assert_eq!(ms((0..100).map(|n| 84 - n % 3)), SLO, "or a little more");
        assert_eq!(ms([20; 99].into_iter().chain([80])), SLO);
        assert_eq!(ms([20, 200]), SLO);
        assert_eq!(ms([20, 50, 30]), Nanos::from_millis(50));
        assert_eq!(ms([200, 120, 300]), Nanos::from_millis(120));
    }

    #[test]
    fn what_a_request_has_is_forgotten_after_one_to_two_periods() {
        let (less, mut planned) = (Nanos::from_millis(20), PlannedBudget::of(SLO));
        planned.record(less);
        assert!(planned.update() && !planned.update(), "the second time it is the same");
        assert_eq!(planned.get(), less);
        planned.record(SLO);
        for _ in 2..2 * UPDATES {
            planned.record(less);
            planned.update();
            assert_eq!(planned.get(), SLO);
        }
        planned.record(less);
        assert!(planned.update());
        assert_eq!(planned.get(), less);
        // Nothing is known after a silence.
        for _ in 0..2 * UPDATES {
            planned.update();
        }
        assert_eq!(planned.get(), SLO);
    }
}
