//! Sizes of requests in buckets, as they are counted and reported.

/// The most items of a request in each bucket: ⌊2^(i/4)⌋, four per doubling up to
/// [`PROFILE_BATCH_MAX`](crate::PROFILE_BATCH_MAX). No request has less than five sixths of its bucket's bound.
pub const ITEM_BOUNDS: [u64; 43] = [
    1, 2, 3, 4, 5, 6, 8, 9, 11, 13, 16, 19, 22, 26, 32, 38, 45, 53, 64, 76, 90, 107, 128, 152, 181, 215, 256, 304, 362,
    430, 512, 608, 724, 861, 1024, 1217, 1448, 1722, 2048, 2435, 2896, 3444, 4096,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PROFILE_BATCH_MAX;

    #[test]
    fn buckets_are_narrow_and_reach_as_far_as_profiles() {
        assert!(ITEM_BOUNDS.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(ITEM_BOUNDS.windows(2).all(|pair| 6 * (pair[0] + 1) >= 5 * pair[1]));
        assert_eq!((ITEM_BOUNDS[0], ITEM_BOUNDS.last()), (1, Some(&u64::from(PROFILE_BATCH_MAX))));
    }
}
