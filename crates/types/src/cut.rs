//! Where a model can be cut, as numbers that models can be compared by.

use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};

/// Cut points of a model that are reported to the cluster, the deepest ones: heads are short. A residual network of 50
/// layers has some 20; of 4096 models they take 1.3 MiB of a snapshot.
pub const MODEL_CUTS_MAX: usize = 16;

/// What a model computes up to a cut point: the first 128 bits of the hash of that value. Models with equal ones begin
/// with the same trunk; a backend that cuts them compares the whole hashes.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CutDigest(u128);

impl CutDigest {
    /// Wraps the number.
    #[must_use]
    pub const fn new(number: u128) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }

    /// The digest of a hash.
    #[must_use]
    pub fn of(hash: &[u8; 32]) -> Self {
        Self(hash.iter().take(16).fold(0, |number, &byte| (number << 8) | u128::from(byte)))
    }

    /// The cut points, among these, that are reported to the cluster: the deepest, in rising order of depth.
    #[must_use]
    pub fn reported(cuts: impl DoubleEndedIterator<Item = Self>) -> Vec<Self> {
        let mut reported: Vec<_> = cuts.rev().take(MODEL_CUTS_MAX).collect();
        reported.reverse();
        reported
    }
}

impl fmt::Display for CutDigest {
    /// The first 32 bits, which tell the trunks of a cluster apart for a reader.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 96)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_beginning_of_a_hash_and_is_shown_by_its_own() {
        let mut hash = [0_u8; 32];
        (hash[0], hash[15], hash[16]) = (0x9a, 0x3f, 0xff);
        let digest = CutDigest::of(&hash);
        assert_eq!((digest.get(), digest.to_string()), ((0x9a_u128 << 120) | 0x3f, "9a000000".to_owned()));
        assert_eq!(CutDigest::new(digest.get()), digest);
    }

    #[test]
    fn the_deepest_cut_points_are_reported_in_order() {
        let cuts = |count: u128| (0..count).map(CutDigest::new);
        assert_eq!(CutDigest::reported(cuts(2)), cuts(2).collect::<Vec<_>>());
        let reported = CutDigest::reported(cuts(100));
        assert_eq!(reported, cuts(100).skip(100 - MODEL_CUTS_MAX).collect::<Vec<_>>());
    }
}
