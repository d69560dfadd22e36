//! The longest time that requests can wait by their own deadlines.

use symphony_types::Nanos;

use crate::meters::rate_meter::BUCKETS;

/// Older maxima are forgotten after this many reads: the number of buckets in the five seconds of the rate meter.
const READS: u32 = BUCKETS as u32;

/// The longest time from arrival to deadline among recent arrivals, in fixed memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct LongestBudget {
    longest: Nanos,
    /// The longest of the previous period.
    former: Nanos,
    reads: u32,
}

impl LongestBudget {
    /// Records the time from a request's arrival to its deadline.
    #[inline]
    pub(crate) fn record(&mut self, budget: Nanos) {
        self.longest = self.longest.max(budget);
    }

    /// The recent maximum. Read it about every 50 ms.
    pub(crate) fn recent_max(&mut self) -> Nanos {
        self.reads += 1;
        if self.reads > READS {
            (self.former, self.longest, self.reads) = (self.longest, Nanos::ZERO, 1);
        }
        self.longest.max(self.former)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_is_remembered_for_one_to_two_stretches() {
        let mut longest_budget = LongestBudget::default();
        longest_budget.record(Nanos::new(7));
        for _ in 0..2 * READS {
            longest_budget.record(Nanos::new(3));
            assert_eq!(longest_budget.recent_max(), Nanos::new(7));
        }
        longest_budget.record(Nanos::new(3));
        assert_eq!(longest_budget.recent_max(), Nanos::new(3));
    }
}
