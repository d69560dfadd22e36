//! How a quota is divided.

use crate::token_bucket::sound;

/// One's share of a quota that `count` divide by what each is asked for, max-min: small demands are met, large ones get
/// equal parts of what is left. What is left when all are met is divided equally, for demands that grow.
///
/// `demands` are those of all in ascending order, its `own` among them; members that are not listed are asked for
/// nothing. The shares sum to the quota, but for rounding, and none lacks while another has more than it is asked for.
#[must_use]
pub(crate) fn share_of(quota: f64, count: usize, demands: &[f64], own: f64) -> f64 {
    let (mut left, mut rest) = (sound(quota), demands.len() as f64);
    for &demand in demands {
        if demand * rest >= left {
            return own.min(left / rest);
        }
        left -= demand;
        rest -= 1.0;
    }
    own + left / count.max(1) as f64
}

/// The shares of all.
#[cfg(test)]
pub(crate) fn split(quota: f64, demands: &[f64]) -> Vec<f64> {
    let mut sorted = demands.to_vec();
    sorted.sort_by(f64::total_cmp);
    demands.iter().map(|&own| share_of(quota, demands.len(), &sorted, own)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_demands_are_met_and_large_ones_share_the_rest() {
        assert_eq!(split(90.0, &[10.0, 100.0, 60.0]), [10.0, 40.0, 40.0]);
        assert_eq!(split(90.0, &[10.0, 20.0, 30.0]), [20.0, 30.0, 40.0], "and 10 for each in case they grow");
        assert_eq!(split(90.0, &[0.0, 0.0, 0.0]), [30.0; 3]);
        assert_eq!(split(f64::INFINITY, &[1.0]), [0.0]);
        assert_eq!(split(0.0, &[0.0, 5.0]), [0.0; 2]);
        assert_eq!(share_of(90.0, 3, &[30.0], 30.0), 50.0, "two are asked for nothing");
        assert_eq!(share_of(90.0, 3, &[100.0], 100.0), 90.0);
    }

    proptest! {
        #[test]
        fn all_is_given_out_and_nobody_lacks_while_another_has_too_much(
            quota in 0.0_f64..1e6,
            demands in prop::collection::vec(prop_oneof![Just(0.0), 0.0_f64..1e6], 1..20),
        ) {
            let shares = split(quota, &demands);
            let sum: f64 = shares.iter().sum();
            let slack = 1e-9 * (1.0 + quota);
            prop_assert!((sum - quota).abs() <= slack, "{sum} of {quota}");
            let lacks = shares.iter().zip(&demands).any(|(share, demand)| *share < demand - slack);
            let has_too_much = shares.iter().zip(&demands).any(|(share, demand)| *share > demand + slack);
            prop_assert!(!(lacks && has_too_much), "{shares:?}");
            // A frontend that lacks has no less than any other.
            let largest = shares.iter().copied().fold(0.0, f64::max);
            for (share, demand) in shares.iter().zip(&demands) {
                prop_assert!(*share >= demand - slack || *share >= largest - slack, "{shares:?}");
            }
        }
    }
}
