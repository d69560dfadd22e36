//! A histogram of short durations with one writing thread.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::MetricEncoder;
use symphony_types::Nanos;

use crate::fine_buckets::{FineBuckets, PER_DOUBLING, merged, native_bounds};

/// Upper bounds of the classic buckets in nanoseconds, seven per power of ten: from the resolution of a spinning thread
/// to beyond the largest payload on a slow network. A quantile read from them is off by at most a half.
const CLASSIC_NS: [u64; 43] = {
    let steps = [10, 15, 20, 30, 40, 50, 70];
    let mut bounds = [0; 43];
    let mut index = 0;
    while index < bounds.len() {
        bounds[index] = steps[index % 7] * 100 * 10_u64.pow((index / 7) as u32);
        index += 1;
    }
    bounds
};

/// Those of the native buckets: from 2^-20 s, a microsecond, to 2^4 s. A quantile read from them is off by at most 9 %.
const NATIVE_NS: [u64; 24 * PER_DOUBLING + 1] = native_bounds(-20, 1_000_000_000);

const BOUNDS_NS: [u64; CLASSIC_NS.len() + NATIVE_NS.len()] = merged(&CLASSIC_NS, &NATIVE_NS);

pub(crate) static DURATIONS: FineBuckets = FineBuckets {
    bounds: &BOUNDS_NS,
    classic: &CLASSIC_NS,
    native: &NATIVE_NS,
    first_power: -20,
    per_unit: 1_000_000_000,
};

/// The bounds, and one bucket for everything above them.
const BUCKETS: usize = BOUNDS_NS.len() + 1;

/// Durations from 1 µs to 16 s in fixed buckets, without a lock: for decision threads, which must not wait for readers.
/// It takes 2 KiB.
///
/// One thread records, any thread reads. A reading may miss the values being recorded, and never counts too many.
#[derive(Debug)]
pub struct DurationHistogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// What a [`DurationHistogram`] held when it was read, or several of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationCounts {
    buckets: [u64; BUCKETS],
    sum_ns: u64,
    max_ns: u64,
}

impl Default for DurationHistogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum_ns: AtomicU64::new(0), max_ns: AtomicU64::new(0) }
    }
}

impl DurationHistogram {
    /// Counts one duration. To be called by one thread only: with a single writer no addition has to be atomic.
    #[inline]
    pub fn record(&self, duration: Nanos) {
        let ns = duration.get();
        add(&self.buckets[DURATIONS.at(ns)], 1);
        add(&self.sum_ns, ns);
        if ns > self.max_ns.load(Ordering::Relaxed) {
            self.max_ns.store(ns, Ordering::Relaxed);
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn read(&self) -> DurationCounts {
        let mut buckets = [0; BUCKETS];
        for (count, bucket) in buckets.iter_mut().zip(&self.buckets) {
            *count = bucket.load(Ordering::Relaxed);
        }
        DurationCounts {
            buckets,
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
            max_ns: self.max_ns.load(Ordering::Relaxed),
        }
    }
}

#[inline]
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

impl Default for DurationCounts {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum_ns: 0, max_ns: 0 }
    }
}

impl DurationCounts {
    /// Adds what another histogram held.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += more;
        }
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The counts since `earlier`, a reading of the same histograms. The maximum is that of all time.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut buckets = self.buckets;
        for (count, before) in buckets.iter_mut().zip(&earlier.buckets) {
            *count -= before;
        }
        Self { buckets, sum_ns: self.sum_ns - earlier.sum_ns, max_ns: self.max_ns }
    }

    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The longest of them, exactly.
    #[must_use]
    pub const fn max(&self) -> Nanos {
        Nanos::new(self.max_ns)
    }

    /// All of them together.
    #[must_use]
    pub const fn sum(&self) -> Nanos {
        Nanos::new(self.sum_ns)
    }

    /// The bound below which the share `quantile` of all durations lies: the upper end of a bucket, or the longest
    /// duration if that is less. Zero if there are none.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Nanos {
        let rank = (self.count() as f64 * quantile).ceil() as u64;
        let mut seen = 0;
        for (count, bound) in self.buckets.iter().zip(BOUNDS_NS) {
            seen += count;
            if seen >= rank {
                return Nanos::new(bound.min(self.max_ns));
            }
        }
        self.max()
    }

    /// Writes it as a Prometheus histogram in seconds, with classic and native buckets.
    ///
    /// # Errors
    /// If the encoder's output refuses it.
    pub fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        DURATIONS.encode(&self.buckets, self.sum_ns, encoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classic_bounds_grow_and_reach_from_a_microsecond_to_a_second() {
        assert!(CLASSIC_NS.is_sorted());
        assert_eq!((CLASSIC_NS[0], CLASSIC_NS[1], CLASSIC_NS[2]), (1_000, 1_500, 2_000));
        assert_eq!((CLASSIC_NS[7], CLASSIC_NS[28], CLASSIC_NS[42]), (10_000, 10_000_000, 1_000_000_000));
        assert!(CLASSIC_NS.windows(2).all(|pair| 2 * pair[1] <= 3 * pair[0]), "a quantile is off by at most a half");
    }

    #[test]
    fn a_duration_counts_in_the_first_bucket_that_holds_it() {
        let histogram = DurationHistogram::default();
        for ns in [0, 1_000, 1_001, 1_000_000_000, 1_000_000_001, u64::from(u32::MAX)] {
            histogram.record(Nanos::new(ns));
        }
        let counts = histogram.read();
        let classic = DURATIONS.classic_counts(&counts.buckets);
        assert_eq!((classic[0], classic[1]), (2, 1));
        assert_eq!((classic[42], classic[43]), (1, 2));
        assert_eq!(counts.count(), 6);
        assert_eq!(counts.max(), Nanos::new(u32::MAX.into()));
    }

    #[test]
    fn quantiles_are_upper_ends_of_buckets_and_never_above_the_longest() {
        let histogram = DurationHistogram::default();
        (0..98).for_each(|_| histogram.record(Nanos::new(1_200)));
        histogram.record(Nanos::new(40_000));
        histogram.record(Nanos::new(70_000));
        let counts = histogram.read();
        assert_eq!(counts.quantile(0.5), Nanos::new(1_236), "2^-19.625 s");
        assert_eq!(counts.quantile(0.99), Nanos::new(40_000));
        assert_eq!(counts.quantile(1.0), Nanos::new(70_000));
        assert_eq!(DurationCounts::default().quantile(0.99), Nanos::ZERO);
    }

    #[test]
    fn histograms_of_several_threads_add_up() {
        let (one, other) = (DurationHistogram::default(), DurationHistogram::default());
        one.record(Nanos::new(2_000));
        other.record(Nanos::new(2_000));
        other.record(Nanos::new(9_000));
        let mut both = one.read();
        both.merge(&other.read());
        assert_eq!((both.count(), both.sum(), both.max()), (3, Nanos::new(13_000), Nanos::new(9_000)));
        let since = both.since(&one.read());
        assert_eq!((since.count(), since.sum()), (2, Nanos::new(11_000)));
    }
}
