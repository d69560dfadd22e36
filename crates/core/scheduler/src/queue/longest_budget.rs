//! The longest time that requests can wait by their own deadlines.

use symphony_types::Nanos;

/// Older maxima are forgotten after this many reads: the number of buckets in the five seconds of the rate meter.
const LOOKS: u32 = 100;

/// The longest time from arrival to deadline among recent arrivals, in fixed memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct LongestBudget {
    longest: Nanos,
    /// The longest of the previous period.
    former: Nanos,
    looks: u32,
}

impl LongestBudget {
    /// Records the time from a request's arrival to its deadline.
    #[inline]
    pub(crate) fn note(&mut self, budget: Nanos) {
        self.longest = self.longest.max(budget);
    }

    /// The recent maximum. Read it about every 50 ms.
    pub(crate) fn look(&mut self) -> Nanos {
        self.looks += 1;
        if self.looks > LOOKS {
            (self.former, self.longest, self.looks) = (self.longest, Nanos::ZERO, 1);
        }
        self.longest.max(self.former)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_is_remembered_for_one_to_two_stretches() {
        let mut patience = LongestBudget::default();
        patience.note(Nanos::new(7));
        for _ in 0..2 * LOOKS {
            patience.note(Nanos::new(3));
            assert_eq!(patience.look(), Nanos::new(7));
        }
        patience.note(Nanos::new(3));
        assert_eq!(patience.look(), Nanos::new(3));
    }
}
