//! The arrival rate in items per second.

use symphony_types::{Nanos, Time};

/// Buckets of the window.
pub(crate) const BUCKETS: usize = 100;
/// Width of a bucket. 100 × 50 ms: five seconds, as the authors' code measures it.
const BUCKET: Nanos = Nanos::from_millis(50);

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
    fn time_before_the_first_item_does_not_count() {
        let mut meter = RateMeter::default();
        feed(&mut meter, 100_000, 100_501, 5);
        assert!((meter.per_second() - 200.0).abs() < 1e-9, "{}", meter.per_second());
    }
}
