//! A histogram of whole numbers with one writing thread.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::MetricEncoder;

use crate::FineBuckets;

/// Whole numbers in given buckets, without a lock: for decision threads, which must not wait for readers.
///
/// One thread records, any thread reads. A reading may miss the values being recorded, and never counts too many.
#[derive(Debug)]
pub struct ValueHistogram {
    buckets: &'static FineBuckets,
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// What a [`ValueHistogram`] held when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueCounts {
    buckets: &'static FineBuckets,
    counts: Vec<u64>,
    sum: u64,
}

impl ValueHistogram {
    /// With these buckets.
    #[must_use]
    pub fn new(buckets: &'static FineBuckets) -> Self {
        let counts = (0..buckets.count()).map(|_| AtomicU64::new(0)).collect();
        Self { buckets, counts, sum: AtomicU64::new(0) }
    }

    /// Counts one value. To be called by one thread only: with a single writer no addition has to be atomic.
    #[inline]
    pub fn record(&self, value: u64) {
        let count = &self.counts[self.buckets.at(value)];
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.sum.store(self.sum.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
    }

    /// The counts so far.
    #[must_use]
    pub fn read(&self) -> ValueCounts {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        ValueCounts { buckets: self.buckets, counts, sum: self.sum.load(Ordering::Relaxed) }
    }
}

impl ValueCounts {
    /// How many values were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many values each classic bucket holds; the last one has those above all bounds.
    #[must_use]
    pub fn classic(&self) -> Vec<u64> {
        self.buckets.classic_counts(&self.counts)
    }

    /// Writes it as a Prometheus histogram, with classic buckets and, where there are any, native ones.
    ///
    /// # Errors
    /// If the encoder's output refuses it.
    pub fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        self.buckets.encode(&self.counts, self.sum, encoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_the_first_bucket_that_holds_it() {
        static BUCKETS: FineBuckets = FineBuckets::classic_only(&[0, 2, 4]);
        let histogram = ValueHistogram::new(&BUCKETS);
        for value in [0, 1, 2, 3, 5, 90] {
            histogram.record(value);
        }
        let counts = histogram.read();
        assert_eq!((counts.classic(), counts.sum, counts.count()), (vec![1, 2, 1, 2], 101, 6));
    }
}
