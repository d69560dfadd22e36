//! Maps by ids that the control plane hands out.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by small numbers that no client chooses. They need spreading, but not the standard hasher's protection
/// against crafted keys, which costs more than the decision that it precedes.
pub(crate) type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Spreads a number by one multiplication (Knuth's, with the golden ratio of 64 bits).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        // The map takes its buckets from the low bits; the product is best mixed in its high ones.
        self.0.rotate_left(32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u32(&mut self, id: u32) {
        self.write_u64(id.into());
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::ModelId;

    use super::*;

    #[test]
    fn ids_in_a_row_and_in_strides_are_all_found() {
        for stride in [1, 64, 1 << 12, 1 << 16] {
            let map: IdMap<_, _> = (0..1000_u32).map(|k| (ModelId::new(k.wrapping_mul(stride)), k)).collect();
            for k in (0..1000_u32).filter(|k| k.checked_mul(stride).is_some()) {
                assert_eq!(map.get(&ModelId::new(k * stride)), Some(&k));
            }
        }
    }
}
