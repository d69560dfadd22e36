//! A hash that is equal on every machine and in every release.

/// FNV-1a of 64 bits, computed incrementally.
#[derive(Clone, Copy, Debug)]
pub struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
        Self(OFFSET_BASIS)
    }
}

impl Fnv1a {
    /// Continues the hash with these bytes.
    #[must_use]
    pub fn over(self, bytes: &[u8]) -> Self {
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        Self(bytes.iter().fold(self.0, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME)))
    }

    /// The hash.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}
