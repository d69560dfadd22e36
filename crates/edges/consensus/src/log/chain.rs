//! Links entries into a chain: each carries a hash over its predecessor's link and itself.
//!
//! A checksum shows that an entry is intact, not that it is the last one written at its place: a damaged page of an
//! engine may bring back an older entry, intact and of the same term. Then its link, or that of the entry behind it,
//! does not match.

/// The hash of an entry and everything before it: 64 bits of BLAKE3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link(u64);

impl Link {
    /// The link of the next entry, with this header and payload.
    pub(crate) fn followed_by(self, header: &[u8], payload: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.to_bytes()).update(header).update(payload);
        let mut link = [0; 8];
        link.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        Self::from_bytes(link)
    }

    pub(crate) const fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    pub(crate) const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }
}
