//! The checksum of payloads: CRC-32C, in wide registers where there is enough for them to do.

use crc_fast::{CrcAlgorithm, Digest};

/// From this many bytes on wide registers pay for their set-up (measured: they are slower at 64, twice as fast at 512).
const WIDE_FROM: usize = 512;

/// The checksum of bytes that follow those of which `checksum` is.
pub(crate) fn append(checksum: u32, bytes: &[u8]) -> u32 {
    if bytes.len() < WIDE_FROM {
        return crc32c::crc32c_append(checksum, bytes);
    }
    // A finished sum is inverted.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!checksum));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_is_that_of_the_standard() {
        // RFC 3720, B.4: 32 bytes of zeros; and the same again and again, in wide registers.
        assert_eq!(append(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(append(0, &[7; 4096]), crc32c::crc32c(&[7; 4096]));
    }

    proptest! {
        #[test]
        fn both_ways_give_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..4 * WIDE_FROM), before: u32, cut: prop::sample::Index) {
            let whole = append(before, &bytes);
            prop_assert_eq!(whole, crc32c::crc32c_append(before, &bytes));
            let (first, rest) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(append(append(before, first), rest), whole);
        }
    }
}
