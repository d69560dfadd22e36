//! The time from arrival to deadline that recent requests have, and the budget that batches are planned for by it.

use std::mem;

use symphony_types::Nanos;

use crate::meters::rate_meter::BUCKETS;

/// Older budgets are forgotten after this many reads: the number of buckets in the five seconds of the rate meter.
const READS: u32 = BUCKETS as u32;
/// Closer to the SLO than the SLO over this is the SLO: requests lose some of it on their way to the queue.
const SLO_TOLERANCE: u64 = 16;

/// The shortest and the longest budget among recent arrivals, in fixed memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentBudgets {
    present: Budgets,
    /// Those of the previous period.
    former: Budgets,
    reads: u32,
}

/// The shortest and the longest; none if the former exceeds the latter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budgets {
    shortest: Nanos,
    pub(crate) longest: Nanos,
}

impl Default for Budgets {
    fn default() -> Self {
        Self { shortest: Nanos::MAX, longest: Nanos::ZERO }
    }
}

impl RecentBudgets {
    /// Records the time from a request's arrival to its deadline.
    #[inline]
    pub(crate) fn record(&mut self, budget: Nanos) {
        self.present.shortest = self.present.shortest.min(budget);
        self.present.longest = self.present.longest.max(budget);
    }

    /// Those of one to two periods. Read it about every 50 ms.
    pub(crate) fn read(&mut self) -> Budgets {
        self.reads += 1;
        if self.reads > READS {
            (self.former, self.reads) = (mem::take(&mut self.present), 1);
        }
        Budgets {
            shortest: self.present.shortest.min(self.former.shortest),
            longest: self.present.longest.max(self.former.longest),
        }
    }
}

impl Budgets {
    /// What batches are planned for: the SLO; where all requests have less, the longest of theirs; where all have more,
    /// the shortest. Where only some have another budget it is the SLO, so that one client's deadlines change nothing
    /// for the others.
    pub(crate) fn nearest_to(self, slo: Nanos) -> Nanos {
        if self.shortest > self.longest {
            return slo;
        }
        let nearest = slo.clamp(self.shortest, self.longest);
        if nearest.get().abs_diff(slo.get()) <= slo.get() / SLO_TOLERANCE { slo } else { nearest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLO: Nanos = Nanos::from_millis(80);

    fn planned(budgets: impl IntoIterator<Item = u64>) -> Nanos {
        let mut recent = RecentBudgets::default();
        budgets.into_iter().for_each(|budget| recent.record(Nanos::from_millis(budget)));
        recent.read().nearest_to(SLO)
    }

    #[test]
    fn batches_are_planned_for_the_slo_unless_all_requests_have_less_or_all_have_more() {
        assert_eq!(planned([]), SLO);
        assert_eq!(planned((0..100).map(|n| 80 - n % 6)), SLO, "what requests lose on their way");
        assert_eq!(planned((0..100).map(|n| 84 - n % 3)), SLO, "or a little more");
        assert_eq!(planned([20; 99].into_iter().chain([80])), SLO);
        assert_eq!(planned([20, 200]), SLO);
        assert_eq!(planned([20, 50, 30]), Nanos::from_millis(50));
        assert_eq!(planned([200, 120, 300]), Nanos::from_millis(120));
    }

    #[test]
    fn a_budget_is_remembered_for_one_to_two_periods() {
        let mut recent = RecentBudgets::default();
        for extreme in [7, 1] {
            recent.record(Nanos::new(extreme));
        }
        let mut read = || {
            recent.record(Nanos::new(3));
            let budgets = recent.read();
            (budgets.shortest, budgets.longest)
        };
        for _ in 0..2 * READS {
            assert_eq!(read(), (Nanos::new(1), Nanos::new(7)));
        }
        assert_eq!(read(), (Nanos::new(3), Nanos::new(3)));
        // Nothing is known after a silence.
        let silence = (0..=2 * READS).map(|_| recent.read()).last().unwrap();
        assert_eq!(silence.nearest_to(SLO), SLO);
    }
}
