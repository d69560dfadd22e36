//! Bucket bounds that several metrics share, so that they can be added and compared.

/// Durations of requests in seconds, eight per power of ten: the share of requests within an SLO that is a bound, such
/// as 25, 50, 100, 250 or 300 ms, is exact, and a quantile is off by at most a half, in the mean by far less.
pub const REQUEST_SECONDS: [f64; 37] = [
    0.0005, 0.0007, 0.001, 0.0015, 0.002, 0.0025, 0.003, 0.004, 0.005, 0.007, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04,
    0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 20.0,
];

/// Durations of steps of a request in seconds: 1, 2, 5 times powers of ten.
pub const STEP_SECONDS: [f64; 15] =
    [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];

/// Items of a batch: powers of two, as batch sizes are.
pub const BATCH_ITEMS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// Shares of a whole, in thousandths; 0 by itself.
pub const SHARES: [u64; 11] = [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000];

/// What a share `quantile` of the values counted by bucket lies below, as PromQL's `histogram_quantile` says it: evenly
/// spread within a bucket, and the last bound for what is above it. None of no values, or if there is not one count for
/// each bound and one more.
#[must_use]
pub fn quantile(bounds: &[f64], counts: &[u64], quantile: f64) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    if all == 0 || counts.len() != bounds.len() + 1 {
        return None;
    }
    let rank = quantile * all as f64;
    let (mut below, mut lower) = (0.0, 0.0);
    for (&bound, &count) in bounds.iter().zip(counts) {
        let count = count as f64;
        if count > 0.0 && below + count >= rank {
            return Some(lower + (bound - lower) * (rank - below) / count);
        }
        (below, lower) = (below + count, bound);
    }
    bounds.last().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_that_prometheus_computes() {
        let (bounds, close) =
            ([1.0, 2.0, 4.0], |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 1e-9);
        assert!(close(quantile(&bounds, &[0, 10, 10, 0], 0.5), 2.0));
        assert!(close(quantile(&bounds, &[0, 10, 10, 0], 0.75), 3.0));
        assert!(close(quantile(&bounds, &[4, 0, 0, 0], 0.5), 0.5));
        assert!(close(quantile(&bounds, &[1, 0, 0, 9], 0.99), 4.0), "above all bounds");
        assert_eq!(quantile(&bounds, &[0; 4], 0.5), None);
        assert_eq!(quantile(&bounds, &[1, 1], 0.5), None, "counted by other bounds");
    }

    #[test]
    fn bounds_grow_by_a_half_at_most_and_are_read_as_written() {
        for pair in REQUEST_SECONDS.windows(2) {
            assert!(pair[0] < pair[1] && pair[1] <= 1.501 * pair[0], "{pair:?}");
        }
        assert!(STEP_SECONDS.is_sorted() && BATCH_ITEMS.is_sorted() && SHARES.is_sorted());
        // No bound such as 0.7240773439350258.
        for bound in REQUEST_SECONDS.iter().chain(&STEP_SECONDS) {
            assert!(bound.to_string().len() <= 6, "{bound}");
        }
    }
}
