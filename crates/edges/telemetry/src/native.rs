//! Native histograms: buckets that grow by a fixed factor and exist where something was counted. They go only to
//! scrapers that take protobuf ([`encode_protobuf`](crate::Registry::encode_protobuf)); text has the classic buckets
//! alone. Those of decision threads, which take no lock, are [`FineBuckets`](crate::FineBuckets).

use prometheus_client::metrics::histogram::{Histogram, NativeHistogramConfig};

/// Of the standard schemas the one with eight buckets for each doubling: a bucket's upper end exceeds its lower end by
/// less than a tenth, as the Prometheus documentation advises.
pub(crate) const NATIVE_SCHEMA: i8 = 3;

/// Native buckets that one histogram may have, as client libraries advise: at 16 bytes each. Durations from 0.1 ms to
/// 60 s need 154; values that spread wider get fewer buckets for each doubling.
const NATIVE_BUCKETS_MAX: usize = 160;

/// A histogram with these classic buckets, and native ones beside. A value is counted by two searches under a lock;
/// memory is taken for a native bucket that is new, of which there are few.
#[must_use]
pub fn native_histogram(bounds: &[f64]) -> Histogram {
    let native = NativeHistogramConfig::with_schema(NATIVE_SCHEMA).max_buckets(NATIVE_BUCKETS_MAX);
    Histogram::new_classic_and_native(bounds.iter().copied(), native)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model as model;

    use super::*;
    use crate::buckets::REQUEST_SECONDS;
    use crate::scraped::{native_counts, scraped};
    use crate::{Kind, MetricName, Registry, Unit};

    const DURATIONS: MetricName = MetricName {
        name: "symphony_queueing_seconds",
        help: "Time between arrival and dispatch",
        kind: Kind::Histogram,
        unit: Unit::Seconds,
        labels: &[],
    };

    /// What a scraper reads of the histogram after these values were counted.
    fn told(values: impl IntoIterator<Item = f64>) -> model::Histogram {
        let registry = Registry::new("test");
        let histogram = registry.register(&DURATIONS, native_histogram(&REQUEST_SECONDS));
        values.into_iter().for_each(|value| histogram.observe(value));
        scraped(&registry, DURATIONS.name)
    }

    /// Values from 10 µs to some 60 s, more of them than of buckets.
    fn durations() -> impl Iterator<Item = f64> {
        (0..2000).map(|step| 1e-5 * 1.00785_f64.powi(step))
    }

    #[test]
    fn native_and_classic_buckets_count_the_same() {
        // Within the limit of buckets, so that the schema stays: from 0.5 ms to 20 s.
        let values: Vec<f64> = durations().filter(|value| (0.0005..20.0).contains(value)).chain([0.0]).collect();
        let histogram = told(values.iter().copied());
        assert_eq!((histogram.schema, histogram.zero_count), (3, 1), "eight buckets for each doubling; 0 by itself");
        assert!((histogram.zero_threshold - 2_f64.powi(-128)).abs() < 1e-50, "{}", histogram.zero_threshold);
        let native = native_counts(&histogram);
        assert_eq!(histogram.sample_count, values.len() as u64);
        assert_eq!(native.iter().map(|(_, count)| count).sum::<i64>() + 1, values.len() as i64);
        // Bucket `index` ends at 2^(index/8), its end included.
        for &(index, count) in &native {
            let (lower, upper) = (2_f64.powf(f64::from(index - 1) / 8.0), 2_f64.powf(f64::from(index) / 8.0));
            let inside = values.iter().filter(|value| **value > lower && **value <= upper).count();
            assert_eq!(count, inside as i64, "({lower}, {upper}]");
        }
        // Both have bounds at powers of two, where they must agree.
        for (bound, index) in [(0.5, -8), (1.0, 0), (2.0, 8), (4.0, 16)] {
            let classic = histogram.bucket.iter().find(|bucket| bucket.upper_bound == bound).unwrap().cumulative_count;
            let below: i64 = native.iter().filter(|(at, _)| *at <= index).map(|(_, count)| count).sum();
            assert_eq!(classic, (below + 1) as u64, "up to {bound}");
        }
    }

    #[test]
    fn however_wide_durations_are_spread_buckets_are_bounded_and_none_is_lost() {
        let wide = durations().chain([1e-9, 1e6]);
        let histogram = told(wide);
        let native = native_counts(&histogram);
        assert!(histogram.schema < 3 && !native.is_empty(), "schema {}", histogram.schema);
        let filled = native.iter().filter(|(_, count)| *count > 0).count();
        assert!(filled <= NATIVE_BUCKETS_MAX, "{filled}");
        assert_eq!(native.iter().map(|(_, count)| count).sum::<i64>(), 2002);
    }

    #[test]
    fn without_values_it_is_told_as_a_native_one_and_texts_are_those_of_a_classic_one() {
        let empty = told([]);
        assert!(empty.zero_threshold > 0.0 && empty.positive_span.is_empty() && empty.sample_count == 0);
        let text = |histogram: Histogram| {
            let registry = Registry::new("test");
            registry.register(&DURATIONS, histogram).observe(0.004);
            let text = registry.encode();
            text.lines().filter(|line| line.contains(DURATIONS.name)).map(str::to_owned).collect::<Vec<_>>()
        };
        let (with, without) = (text(native_histogram(&REQUEST_SECONDS)), text(Histogram::new(REQUEST_SECONDS)));
        assert_eq!(with, without);
        assert!(with.len() > REQUEST_SECONDS.len(), "{with:?}");
    }
}
