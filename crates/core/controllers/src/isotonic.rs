//! Isotonic regression: the rising sequence closest to a measured one.

/// The closest rising sequence in weighted least squares, by the pool-adjacent-violators algorithm. Values and weights
/// are finite, weights positive.
pub(crate) fn rising(values: &[f64], weights: &[f64]) -> Vec<f64> {
    // Pools of adjacent values: mean, weight and size.
    let mut pools: Vec<(f64, f64, usize)> = Vec::with_capacity(values.len());
    for (&value, &weight) in values.iter().zip(weights) {
        let mut pool = (value, weight, 1);
        while let Some(&(mean, weight, count)) = pools.last().filter(|last| last.0 > pool.0) {
            pools.pop();
            let both = weight + pool.1;
            pool = ((mean * weight + pool.0 * pool.1) / both, both, count + pool.2);
        }
        pools.push(pool);
    }
    pools.into_iter().flat_map(|(mean, _, count)| std::iter::repeat_n(mean, count)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_rises_stays_and_violators_meet_at_their_mean() {
        assert_eq!(rising(&[1.0, 2.0, 2.0, 5.0], &[1.0; 4]), [1.0, 2.0, 2.0, 5.0]);
        assert_eq!(rising(&[1.0, 4.0, 2.0, 5.0], &[1.0; 4]), [1.0, 3.0, 3.0, 5.0]);
        assert_eq!(rising(&[1.0, 4.0, 2.0], &[1.0, 3.0, 1.0]), [1.0, 3.5, 3.5]);
        assert_eq!(rising(&[3.0, 2.0, 1.0], &[1.0; 3]), [2.0; 3]);
    }

    proptest! {
        #[test]
        fn the_result_rises_and_keeps_the_weighted_sum(pairs in prop::collection::vec((0.001_f64..1e3, 0.001_f64..10.0), 0..60)) {
            let (values, weights): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            let result = rising(&values, &weights);
            prop_assert_eq!(result.len(), values.len());
            prop_assert!(result.windows(2).all(|pair| pair[0] <= pair[1] * (1.0 + 1e-12)));
            let sum = |values: &[f64]| values.iter().zip(&weights).map(|(value, weight)| value * weight).sum::<f64>();
            prop_assert!((sum(&result) - sum(&values)).abs() <= 1e-9 * sum(&values).max(1.0));
        }
    }
}
