//! A quota over time at one frontend.

use symphony_types::{Nanos, Time};

/// How long an unused quota is saved: clients send in bursts, and a share may be a second behind their demand.
pub const BURST: Nanos = Nanos::from_millis(1000);

/// Fills at a rate and is emptied by what is let in.
///
/// Something is let in while there is anything in the bucket, whatever it costs, and its cost is taken: the level may
/// be below zero then. So the mean rate is kept, and no single request is too large for a small quota.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenBucket {
    per_second: f64,
    level: f64,
    at: Time,
}

impl TokenBucket {
    /// A full bucket. A rate that is not a positive number counts as zero.
    #[must_use]
    pub fn full(now: Time, per_second: f64) -> Self {
        let per_second = sound(per_second);
        Self { per_second, level: per_second * BURST.as_secs_f64(), at: now }
    }

    /// The rate.
    #[must_use]
    pub const fn per_second(&self) -> f64 {
        self.per_second
    }

    /// From now on it fills at another rate; what was taken stays taken.
    pub fn set_rate(&mut self, now: Time, per_second: f64) {
        self.fill(now);
        self.per_second = sound(per_second);
        self.level = self.level.min(self.per_second * BURST.as_secs_f64());
    }

    /// Whether anything is in it.
    ///
    /// # Errors
    /// If not: how long until then, at this rate.
    pub fn check_level(&mut self, now: Time) -> Result<(), Nanos> {
        self.fill(now);
        if self.level > 0.0 {
            return Ok(());
        }
        // A nanosecond more, since rounding takes up to half of one: so there is something by then.
        let missing_s = -self.level / self.per_second + 1e-9;
        Err(if missing_s.is_finite() { Nanos::from_secs_f64(missing_s) } else { Nanos::MAX })
    }

    /// Takes what something costs, if anything is in the bucket.
    ///
    /// # Errors
    /// As [`check_level`](Self::check_level); then nothing was taken.
    pub fn take(&mut self, now: Time, cost: f64) -> Result<(), Nanos> {
        self.check_level(now)?;
        self.level -= sound(cost);
        Ok(())
    }

    fn fill(&mut self, now: Time) {
        let full = self.per_second * BURST.as_secs_f64();
        self.level = (self.level + self.per_second * now.since(self.at).as_secs_f64()).min(full);
        self.at = self.at.max(now);
    }
}

/// The number if it is finite and positive, or else zero.
pub(crate) fn sound(number: f64) -> f64 {
    if number.is_finite() && number > 0.0 { number } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Nanos::from_millis(millis)
    }

    #[test]
    fn a_burst_of_a_second_gets_in_and_then_the_rate() {
        let mut bucket = TokenBucket::full(at(0), 10.0);
        let got_in = |bucket: &mut TokenBucket, now| (0..100).filter(|_| bucket.take(now, 1.0).is_ok()).count();
        assert_eq!(got_in(&mut bucket, at(0)), 10);
        let wait = bucket.take(at(0), 1.0).unwrap_err();
        assert!(wait <= Nanos::from_millis(1), "{wait:?}");
        assert_eq!(got_in(&mut bucket, at(500)), 5);
        assert_eq!(got_in(&mut bucket, at(60_000)), 10, "no more than a second is saved");
    }

    #[test]
    fn what_costs_more_than_a_second_of_the_rate_gets_in_and_is_paid_for() {
        let mut bucket = TokenBucket::full(at(0), 2.0);
        assert_eq!(bucket.take(at(0), 10.0), Ok(()));
        let wait = bucket.take(at(0), 1.0).unwrap_err();
        assert_eq!(wait.get() / 1_000_000, 4000);
        assert!(bucket.check_level(at(3999)).is_err() && bucket.check_level(at(4001)).is_ok());
    }

    #[test]
    fn no_rate_lets_in_nothing_and_another_rate_counts_from_then_on() {
        let mut bucket = TokenBucket::full(at(0), f64::NAN);
        assert_eq!(bucket.take(at(0), 1.0), Err(Nanos::MAX));
        bucket.set_rate(at(1000), 10.0);
        assert!(bucket.take(at(1000), 1.0).is_err() && bucket.take(at(1100), 1.0).is_ok());
        bucket.set_rate(at(5000), 1.0);
        assert!(
            bucket.take(at(5000), 1.0).is_ok() && bucket.take(at(5000), 1.0).is_err(),
            "the burst is the new rate's"
        );
    }

    proptest! {
        #[test]
        fn what_gets_in_is_the_rate_a_burst_and_one_request(
            rate in 0.1_f64..100.0,
            calls in prop::collection::vec((0_u64..500, 0.1_f64..20.0), 1..200),
        ) {
            let mut bucket = TokenBucket::full(at(0), rate);
            let (mut now, mut taken, mut largest) = (0, 0.0, 0.0_f64);
            for (pause, cost) in calls {
                now += pause;
                largest = largest.max(cost);
                let before = bucket;
                match bucket.take(at(now), cost) {
                    Ok(()) => taken += cost,
                    // A caller that waits as long as it was told gets in.
                    Err(wait) => prop_assert!(before.clone().take(at(now) + wait, cost).is_ok()),
                }
            }
            let most = rate * (now as f64 / 1000.0 + 1.0) + largest;
            prop_assert!(taken <= most * (1.0 + 1e-9), "{taken} of {most}");
        }
    }
}
