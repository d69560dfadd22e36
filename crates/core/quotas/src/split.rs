//! How a quota is divided.

use crate::token_bucket::sound;

/// Divides a quota by what each is asked for, max-min: small demands are met, large ones get equal parts of what is
/// left. What is left when all are met is divided equally, for demands that grow.
///
/// The shares sum to the quota, but for rounding, and none lacks while another has more than it is asked for.
#[must_use]
pub fn split(quota: f64, demands: &[f64]) -> Vec<f64> {
    let mut order: Vec<_> = (0..demands.len()).collect();
    order.sort_by(|&a, &b| sound(demands[a]).total_cmp(&sound(demands[b])));
    let (mut left, mut shares) = (sound(quota), vec![0.0; demands.len()]);
    for (at, &who) in order.iter().enumerate() {
        let equal = left / (order.len() - at) as f64;
        shares[who] = sound(demands[who]).min(equal);
        left -= shares[who];
    }
    let spare = left.max(0.0) / demands.len().max(1) as f64;
    shares.iter_mut().for_each(|share| *share += spare);
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_demands_are_met_and_large_ones_share_the_rest() {
        assert_eq!(split(90.0, &[10.0, 100.0, 60.0]), [10.0, 40.0, 40.0]);
        assert_eq!(split(90.0, &[10.0, 20.0, 30.0]), [20.0, 30.0, 40.0], "and 10 for each in case they grow");
        assert_eq!(split(90.0, &[0.0, 0.0, f64::NAN]), [30.0; 3]);
        assert_eq!(split(f64::INFINITY, &[1.0]), [0.0]);
        assert!(split(1.0, &[]).is_empty());
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
            // Who lacks has no less than anybody else.
            let largest = shares.iter().copied().fold(0.0, f64::max);
            for (share, demand) in shares.iter().zip(&demands) {
                prop_assert!(*share >= demand - slack || *share >= largest - slack, "{shares:?}");
            }
        }
    }
}
