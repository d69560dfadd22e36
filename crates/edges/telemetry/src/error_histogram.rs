//! A histogram of prediction errors with one writing thread.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::MetricEncoder;
use symphony_types::Nanos;

use crate::fine_buckets::{FineBuckets, PER_DOUBLING, merged, native_bounds};

const MILLION: u64 = 1_000_000;

/// Upper bounds of the classic buckets, in millionths of the prediction: fine around a tenth, an error at which
/// deadlines kept in simulation may be missed.
const CLASSIC: [u64; 12] =
    [5_000, 10_000, 20_000, 30_000, 50_000, 70_000, 100_000, 150_000, 200_000, 300_000, 500_000, 1_000_000];

/// Those of the native buckets: from 2^-10, a thousandth, to four times the prediction.
const NATIVE: [u64; 12 * PER_DOUBLING + 1] = native_bounds(-10, MILLION);

const BOUNDS: [u64; CLASSIC.len() + NATIVE.len()] = merged(&CLASSIC, &NATIVE);

pub(crate) static ERRORS: FineBuckets =
    FineBuckets { bounds: &BOUNDS, classic: &CLASSIC, native: &NATIVE, first_power: -10, per_unit: MILLION };

/// The bounds, and one bucket for everything above them.
const BUCKETS: usize = BOUNDS.len() + 1;

/// |measured − predicted| / predicted in fixed buckets, without a lock: for decision threads, which must not wait for
/// readers.
///
/// One thread records, any thread reads. A reading may miss the values being recorded, and never counts too many.
#[derive(Debug)]
pub struct ErrorHistogram {
    buckets: [AtomicU64; BUCKETS],
    /// Of errors in millionths.
    sum: AtomicU64,
}

/// What an [`ErrorHistogram`] held when it was read, or several of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCounts {
    buckets: [u64; BUCKETS],
    sum: u64,
}

impl Default for ErrorCounts {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum: 0 }
    }
}

impl Default for ErrorHistogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum: AtomicU64::new(0) }
    }
}

impl ErrorHistogram {
    /// Counts one prediction; a prediction of 0 is ignored. To be called by one thread only: with a single writer no
    /// addition has to be atomic.
    pub fn record(&self, predicted: Nanos, measured: Nanos) {
        let (predicted, measured) = (predicted.get(), measured.get());
        if predicted == 0 {
            return;
        }
        // Rounded up, so that an error above a bound, however slightly, counts above it.
        let error = predicted.abs_diff(measured).saturating_mul(MILLION).div_ceil(predicted);
        let add = |counter: &AtomicU64, amount: u64| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        };
        add(&self.buckets[ERRORS.at(error)], 1);
        add(&self.sum, error);
    }

    /// The counts so far.
    #[must_use]
    pub fn read(&self) -> ErrorCounts {
        let mut buckets = [0; BUCKETS];
        for (count, bucket) in buckets.iter_mut().zip(&self.buckets) {
            *count = bucket.load(Ordering::Relaxed);
        }
        ErrorCounts { buckets, sum: self.sum.load(Ordering::Relaxed) }
    }
}

impl ErrorCounts {
    /// Adds what another histogram held.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += more;
        }
        self.sum += other.sum;
    }

    /// How many predictions were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Writes it as a Prometheus histogram of ratios, with classic and native buckets.
    ///
    /// # Errors
    /// If the encoder's output refuses it.
    pub fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        ERRORS.encode(&self.buckets, self.sum, encoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_counts_in_the_first_bucket_that_holds_it_whichever_way_it_is_off() {
        let histogram = ErrorHistogram::default();
        let predicted = Nanos::new(1_000_000);
        for measured in [1_000_000, 1_005_000, 1_005_001, 900_000, 1_100_000, 1_100_001, 0, 2_000_001, u64::MAX] {
            histogram.record(predicted, Nanos::new(measured));
        }
        let counts = histogram.read();
        assert_eq!(ERRORS.classic_counts(&counts.buckets), [2, 1, 0, 0, 0, 0, 2, 1, 0, 0, 0, 1, 2]);
        assert_eq!(counts.count(), 9);
    }

    #[test]
    fn what_was_not_predicted_is_no_error_and_histograms_of_several_threads_add_up() {
        let (one, other) = (ErrorHistogram::default(), ErrorHistogram::default());
        one.record(Nanos::ZERO, Nanos::new(7));
        assert_eq!(one.read(), ErrorCounts::default());
        one.record(Nanos::new(1_000), Nanos::new(1_250));
        other.record(Nanos::new(1_000), Nanos::new(500));
        let mut both = one.read();
        both.merge(&other.read());
        assert_eq!((both.count(), both.sum), (2, 750_000));
    }
}
