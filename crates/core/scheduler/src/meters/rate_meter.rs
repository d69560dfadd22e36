//! The arrival rate in items per second.

use symphony_types::{Nanos, Time};

/// Buckets of the window.
const BUCKETS: usize = 100;
/// Width of a bucket. 100 × 50 ms: five seconds, as the authors' code measures it.
const BUCKET: Nanos = Nanos::from_millis(50);
/// With fewer full buckets the counts say nothing about bursts.
const DISPERSION_BUCKETS_MIN: u64 = 10;

/// The mean arrival rate over the last five seconds, in fixed memory.
#[derive(Clone, Debug)]
pub struct RateMeter {
    counts: [u32; BUCKETS],
    /// Sum of all full buckets.
    total: u64,
    /// Number of the current bucket, counted from the origin of time.
    current: u64,
    /// Items in the current bucket.
    filling: u32,
    /// Full buckets, at most [`BUCKETS`].
    full: u64,
    /// False until the first item: the time before it says nothing about the rate.
    started: bool,
}

impl Default for RateMeter {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], total: 0, current: 0, filling: 0, full: 0, started: false }
    }
}

impl RateMeter {
    /// Counts `items` that arrive at `now`. Returns whether a bucket was completed, and thus whether the rate has
    /// changed.
    #[inline]
    pub fn count(&mut self, now: Time, items: u32) -> bool {
        let changed = self.advance(now);
        self.filling = self.filling.saturating_add(items);
        changed
    }

    fn advance(&mut self, now: Time) -> bool {
        let bucket = now.as_nanos() / BUCKET.get();
        if !self.started {
            self.started = true;
            self.current = bucket;
        }
        if bucket <= self.current {
            return false;
        }
        // A silence longer than the window empties it; more steps would write the same zeros again.
        let steps = (bucket - self.current).min(BUCKETS as u64 + 1);
        for step in 0..steps {
            let slot = ((self.current + step) % BUCKETS as u64) as usize;
            self.total += u64::from(self.filling);
            self.total -= u64::from(std::mem::replace(&mut self.counts[slot], self.filling));
            self.filling = 0;
        }
        self.full = (self.full + steps).min(BUCKETS as u64);
        self.current = bucket;
        true
    }

    /// The index of dispersion, variance over mean of the items per bucket: about 1 for Poisson arrivals, more for
    /// bursts, and 1 while there are too few buckets.
    #[must_use]
    pub fn dispersion(&self) -> f64 {
        if self.full < DISPERSION_BUCKETS_MIN || self.total == 0 {
            return 1.0;
        }
        let buckets = self.full as f64;
        let mean = self.total as f64 / buckets;
        let squares: f64 = self.counts.iter().map(|&count| f64::from(count).powi(2)).sum();
        ((squares - buckets * mean * mean) / ((buckets - 1.0) * mean)).max(0.0)
    }

    /// The items in the full buckets, from which the rate is computed.
    #[must_use]
    pub const fn items(&self) -> u64 {
        self.total
    }

    /// Items per second over the full buckets; zero before the first one is full.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        if self.full == 0 {
            return 0.0;
        }
        self.total as f64 / (self.full as f64 * BUCKET.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(meter: &mut RateMeter, from_ms: u64, to_ms: u64, every_ms: u64) {
        for ms in (from_ms..to_ms).step_by(every_ms as usize) {
            meter.count(Time::from_nanos(ms * 1_000_000), 1);
        }
    }

    #[test]
    fn a_steady_stream_is_measured_exactly_and_forgotten_after_the_window() {
        let mut meter = RateMeter::default();
        assert_eq!(meter.per_second(), 0.0);
        feed(&mut meter, 0, 1_001, 5);
        assert!((meter.per_second() - 200.0).abs() < 1e-9, "{}", meter.per_second());
        feed(&mut meter, 1_001, 20_000, 10);
        assert!((meter.per_second() - 100.0).abs() < 1.0, "{}", meter.per_second());
        meter.count(Time::from_nanos(3_600_000_000_000), 1);
        assert_eq!(meter.per_second(), 0.0);
    }

    #[test]
    fn bursts_are_told_from_a_steady_stream() {
        let mut meter = RateMeter::default();
        assert_eq!(meter.dispersion(), 1.0);
        feed(&mut meter, 0, 5_000, 5);
        assert!(meter.dispersion() < 0.1, "{}", meter.dispersion());
        // Every tenth bucket gets a hundred, the others nothing: variance 900·100/99, mean 10.
        for bucket in 0..110 {
            meter.count(Time::from_nanos((6_000 + bucket * 50) * 1_000_000), if bucket % 10 == 0 { 100 } else { 0 });
        }
        assert!((meter.dispersion() - 900.0 / 9.9).abs() < 1.0, "{}", meter.dispersion());
    }

    #[test]
    fn time_before_the_first_item_does_not_count() {
        let mut meter = RateMeter::default();
        feed(&mut meter, 100_000, 100_501, 5);
        assert!((meter.per_second() - 200.0).abs() < 1e-9, "{}", meter.per_second());
    }
}
