//! Counting once for both forms of a histogram: for decision threads, which count without a lock and each value once.

use std::fmt;

use prometheus_client::encoding::{MetricEncoder, NativeHistogram, NativeHistogramBuckets, NoLabelSet};

use crate::native::NATIVE_SCHEMA;

/// Native buckets for each doubling.
pub(crate) const PER_DOUBLING: usize = 1 << NATIVE_SCHEMA;

/// Bits behind the point of the powers that native buckets are computed from.
const FRACTION_BITS: i32 = 56;

/// Where whole numbers are counted so that both forms of a histogram are exact sums of the counts: between the upper
/// ends of the classic and of the native buckets together. A value costs one search and one addition, as with one form.
#[derive(Debug, PartialEq, Eq)]
pub struct FineBuckets {
    /// The upper ends of both forms, ascending; what is above the last is counted, too.
    pub(crate) bounds: &'static [u64],
    /// Upper ends of the classic buckets.
    pub(crate) classic: &'static [u64],
    /// Upper ends of the native buckets, or none. What is up to the first counts as zero; what is above the last
    /// counts in the next one, however far above it is.
    pub(crate) native: &'static [u64],
    /// The first native bucket ends at 2 to the power of this.
    pub(crate) first_power: i32,
    /// How many of the whole numbers the metric's unit is.
    pub(crate) per_unit: u64,
}

impl FineBuckets {
    /// These buckets alone, for numbers that are not shown as a native histogram.
    #[must_use]
    pub const fn classic_only(bounds: &'static [u64]) -> Self {
        Self { bounds, classic: bounds, native: &[], first_power: 0, per_unit: 1 }
    }

    /// Which bucket a value counts in.
    #[inline]
    pub(crate) fn at(&self, value: u64) -> usize {
        self.bounds.partition_point(|&bound| bound < value)
    }

    /// How many buckets there are.
    pub(crate) const fn count(&self) -> usize {
        self.bounds.len() + 1
    }

    /// The counts of the classic buckets, and of what is above them.
    pub(crate) fn classic_counts(&self, counts: &[u64]) -> Vec<u64> {
        self.added_up(counts, self.classic)
    }

    /// The counts of coarser buckets, whose ends are among those of the fine ones, and of what is above them.
    fn added_up(&self, counts: &[u64], coarse: &[u64]) -> Vec<u64> {
        let mut sums = vec![0; coarse.len() + 1];
        for (at, &count) in counts.iter().enumerate() {
            let end = self.bounds.get(at);
            let into = end.map_or(coarse.len(), |&end| coarse.partition_point(|&bound| bound < end));
            sums[into] += count;
        }
        sums
    }

    /// Writes what was counted as a Prometheus histogram.
    ///
    /// # Errors
    /// If the encoder's output refuses it.
    pub(crate) fn encode(&self, counts: &[u64], sum: u64, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let per_unit = self.per_unit as f64;
        let ends = self.classic.iter().map(|&bound| bound as f64 / per_unit).chain([f64::INFINITY]);
        let classic: Vec<_> = ends.zip(self.classic_counts(counts)).collect();
        let (sum, count) = (sum as f64 / per_unit, counts.iter().sum::<u64>());
        if self.native.is_empty() {
            return encoder.encode_histogram::<NoLabelSet>(sum, count, &classic, None);
        }
        let native = self.added_up(counts, self.native);
        let (zero_count, above) = (native[0], &native[1..]);
        let (spans, deltas) = spans_and_deltas(self.first_power * PER_DOUBLING as i32 + 1, above);
        let native = NativeHistogram {
            schema: i32::from(NATIVE_SCHEMA),
            zero_threshold: 2_f64.powi(self.first_power),
            zero_count,
            negative: NativeHistogramBuckets { spans: &[], deltas: &[] },
            positive: NativeHistogramBuckets { spans: &spans, deltas: &deltas },
            created: None,
        };
        encoder.encode_histogram_with_native::<NoLabelSet>(sum, count, &classic, None, native)
    }
}

/// Native buckets as they are written, the first of these having this index: runs of buckets that are not empty, each
/// behind how many are left out before it; and how many more each of them has than the one before.
fn spans_and_deltas(first: i32, counts: &[u64]) -> (Vec<(i32, u32)>, Vec<i64>) {
    let (mut spans, mut deltas) = (Vec::<(i32, u32)>::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    for (index, &count) in (first..).zip(counts).filter(|&(_, &count)| count > 0) {
        match spans.last_mut() {
            Some((_, length)) if index == next => *length += 1,
            _ => spans.push((index - next, 1)),
        }
        deltas.push(count as i64 - before);
        (next, before) = (index + 1, count as i64);
    }
    (spans, deltas)
}

/// The upper ends of native buckets in whole numbers, of which `per_unit` are 1: the first is 2 to the power of
/// `first_power`, and from there on eight lie in each doubling. They are rounded down, which changes nothing for whole
/// numbers.
pub(crate) const fn native_bounds<const N: usize>(first_power: i32, per_unit: u64) -> [u64; N] {
    let mut bounds = [0; N];
    let mut at = 0;
    while at < N {
        // 2 to the power of (at mod 8) / 8, by three square roots.
        let mut root = 1_u128 << (FRACTION_BITS as usize + at % PER_DOUBLING);
        let mut roots = 0;
        while roots < NATIVE_SCHEMA {
            root = (root << FRACTION_BITS).isqrt();
            roots += 1;
        }
        let power = first_power + (at / PER_DOUBLING) as i32;
        bounds[at] = ((per_unit as u128 * root) >> (FRACTION_BITS - power)) as u64;
        at += 1;
    }
    bounds
}

/// Two ascending lists as one.
pub(crate) const fn merged<const N: usize>(one: &[u64], other: &[u64]) -> [u64; N] {
    assert!(one.len() + other.len() == N);
    let mut all = [0; N];
    let (mut left, mut right) = (0, 0);
    while left + right < N {
        if right == other.len() || (left < one.len() && one[left] <= other[right]) {
            all[left + right] = one[left];
            left += 1;
        } else {
            all[left + right] = other[right];
            right += 1;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::DescriptorEncoder;
    use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model as model;
    use prometheus_client::metrics::MetricType;

    use super::*;
    use crate::Registry;
    use crate::buckets::{FINE_BATCH_ITEMS, FINE_SHARES};
    use crate::duration_histogram::DURATIONS;
    use crate::error_histogram::ERRORS;
    use crate::scraped::{native_counts, scraped};

    static ALL: [&FineBuckets; 4] = [&DURATIONS, &ERRORS, &FINE_BATCH_ITEMS, &FINE_SHARES];

    #[derive(Debug)]
    struct Counted {
        buckets: &'static FineBuckets,
        counts: Vec<u64>,
        sum: u64,
    }

    impl Collector for Counted {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            let encoder = encoder.encode_descriptor("counted", "Values", None, MetricType::Histogram)?;
            self.buckets.encode(&self.counts, self.sum, encoder)
        }
    }

    /// What scrapers read after these values were counted: in protobuf, and in text.
    fn told(buckets: &'static FineBuckets, values: &[u64]) -> (model::Histogram, String) {
        let mut counts = vec![0; buckets.count()];
        values.iter().for_each(|&value| counts[buckets.at(value)] += 1);
        let registry = Registry::new("test");
        registry.collect(Counted { buckets, counts, sum: values.iter().sum() });
        (scraped(&registry, "counted"), registry.encode())
    }

    #[test]
    fn ends_ascend_and_are_those_of_both_forms() {
        for buckets in ALL {
            assert!(buckets.bounds.is_sorted() && buckets.native.is_sorted(), "{buckets:?}");
            for bound in buckets.classic.iter().chain(buckets.native) {
                assert!(buckets.bounds.contains(bound), "{bound}");
            }
            for (power, &bound) in (8 * buckets.first_power..).zip(buckets.native) {
                let exact = 2_f64.powf(f64::from(power) / 8.0) * buckets.per_unit as f64;
                assert_eq!(bound, exact as u64, "2^({power}/8)");
            }
        }
    }

    #[test]
    fn each_form_counts_every_value_where_it_belongs() {
        for buckets in ALL {
            let per_unit = buckets.per_unit as f64;
            // At each end, just above it, and far above all.
            let mut values: Vec<u64> = buckets.bounds.iter().flat_map(|&bound| [bound, bound + 1]).collect();
            values.extend([0, 1 << 60]);
            let of = |lower: f64, upper: f64| {
                let values = values.iter().map(|&value| value as f64 / per_unit);
                values.filter(|&value| value > lower && value <= upper).count() as u64
            };
            let (histogram, text) = told(buckets, &values);
            assert_eq!(histogram.sample_count, values.len() as u64);
            assert_eq!(histogram.sample_sum, values.iter().sum::<u64>() as f64 / per_unit);

            let classic: Vec<_> = histogram.bucket.iter().map(|at| (at.upper_bound, at.cumulative_count)).collect();
            assert_eq!(classic.len(), buckets.classic.len() + 1);
            for &(bound, count) in &classic {
                assert_eq!(count, of(-1.0, bound), "up to {bound}");
            }
            let lines = text.lines().filter_map(|line| line.strip_prefix("counted_bucket{le=\"")?.split_once("\"} "));
            let lines: Vec<(f64, u64)> =
                lines.map(|(bound, count)| (bound.parse().unwrap(), count.parse().unwrap())).collect();
            assert_eq!(lines, classic, "{text}");

            assert_eq!((histogram.schema, histogram.zero_threshold), (3, 2_f64.powi(buckets.first_power)));
            assert_eq!(histogram.zero_count, of(-1.0, histogram.zero_threshold));
            let native = native_counts(&histogram);
            let last = 8 * buckets.first_power + buckets.native.len() as i32;
            for &(index, count) in &native {
                let end = |index: i32| 2_f64.powf(f64::from(index) / 8.0);
                let upper = if index == last { f64::INFINITY } else { end(index) };
                assert_eq!(count as u64, of(end(index - 1), upper), "bucket {index}");
            }
            assert_eq!(native.last().map(|&(index, _)| index), Some(last), "what is above all has the last bucket");
            let all = native.iter().map(|&(_, count)| count as u64).sum::<u64>() + histogram.zero_count;
            assert_eq!(all, histogram.sample_count);
        }
    }

    #[test]
    fn empty_native_buckets_are_left_out_and_a_histogram_without_values_is_native_still() {
        let (histogram, _) = told(&DURATIONS, &[1_000_000_000, 1_000_000_000, 2_000_000_000, 2_000_000_001]);
        let spans: Vec<_> = histogram.positive_span.iter().map(|span| (span.offset, span.length)).collect();
        assert_eq!((spans, histogram.positive_delta), (vec![(0, 1), (7, 2)], vec![2, -1, 0]));
        let (empty, _) = told(&DURATIONS, &[]);
        assert!(empty.zero_threshold > 0.0 && empty.positive_span.is_empty() && empty.sample_count == 0, "{empty:?}");
    }

    #[test]
    fn without_native_ends_there_are_classic_buckets_alone() {
        static CLASSIC: FineBuckets = FineBuckets::classic_only(&[1, 5]);
        let (histogram, text) = told(&CLASSIC, &[1, 2, 6]);
        assert!(histogram.zero_threshold == 0.0 && histogram.positive_span.is_empty(), "{histogram:?}");
        let counts: Vec<_> = histogram.bucket.iter().map(|bucket| bucket.cumulative_count).collect();
        assert_eq!(counts, [1, 2, 3]);
        assert!(text.contains("counted_bucket{le=\"5.0\"} 2\n"), "{text}");
    }
}
