//! A histogram of whole numbers with one writing thread.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

/// Whole numbers in given buckets, without a lock: for decision threads, which must not wait for readers.
///
/// One thread records, any thread reads. A reading may miss the values being recorded, and never counts too many.
#[derive(Debug)]
pub struct ValueHistogram {
    bounds: &'static [u64],
    /// One more than bounds, for everything above them.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// What a [`ValueHistogram`] held when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueCounts {
    bounds: &'static [u64],
    buckets: Vec<u64>,
    sum: u64,
}

impl ValueHistogram {
    /// With these upper bounds, which ascend.
    #[must_use]
    pub fn new(bounds: &'static [u64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum: AtomicU64::new(0) }
    }

    /// Counts one value. To be called by one thread only: with a single writer no addition has to be atomic.
    #[inline]
    pub fn record(&self, value: u64) {
        let bucket = &self.buckets[self.bounds.partition_point(|&bound| bound < value)];
        bucket.store(bucket.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.sum.store(self.sum.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
    }

    /// The counts so far.
    #[must_use]
    pub fn read(&self) -> ValueCounts {
        let buckets = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        ValueCounts { bounds: self.bounds, buckets, sum: self.sum.load(Ordering::Relaxed) }
    }
}

impl ValueCounts {
    /// How many values were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// How many values each bucket holds; the last one has those above all bounds.
    #[must_use]
    pub fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// Writes it as a Prometheus histogram; `per_unit` of the values are 1 there.
    ///
    /// # Errors
    /// If the encoder's output refuses it.
    pub fn encode(&self, per_unit: f64, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let bounds = self.bounds.iter().map(|&bound| bound as f64 / per_unit).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(self.buckets.iter().copied()).collect();
        encoder.encode_histogram::<NoLabelSet>(self.sum as f64 / per_unit, self.count(), &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_the_first_bucket_that_holds_it() {
        let histogram = ValueHistogram::new(&[0, 2, 4]);
        for value in [0, 1, 2, 3, 5, 90] {
            histogram.record(value);
        }
        let counts = histogram.read();
        assert_eq!((counts.buckets.clone(), counts.sum, counts.count()), (vec![1, 2, 1, 2], 101, 6));
    }
}
