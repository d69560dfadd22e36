//! The hash function. Each sum begins with the name of what it hashes.

use std::fmt;

/// First in each hash: another way to hash gives other hashes.
const VERSION: &str = "symphony-onnx-graph 1";

/// What a value computes: BLAKE3, 256 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueHash([u8; 32]);

impl ValueHash {
    /// Its bytes, as they travel.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The hash that has these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for ValueHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ValueHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "ValueHash({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

/// A hash under way. Whatever has no fixed length is preceded by it, so that no two sequences look alike.
pub(crate) struct Sum(blake3::Hasher);

impl Sum {
    /// The hash of such a thing.
    pub(crate) fn of(what: &str) -> Self {
        Self(blake3::Hasher::new()).text(VERSION).text(what)
    }

    pub(crate) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        self.int(bytes.len() as i64).raw(bytes)
    }

    pub(crate) fn int(self, number: i64) -> Self {
        self.raw(&number.to_le_bytes())
    }

    pub(crate) fn ints(self, numbers: &[i64]) -> Self {
        numbers.iter().fold(self.int(numbers.len() as i64), |sum, &number| sum.int(number))
    }

    pub(crate) fn value(self, hash: ValueHash) -> Self {
        self.raw(&hash.0)
    }

    /// A hash, or that there is none.
    pub(crate) fn optional(self, hash: Option<ValueHash>) -> Self {
        match hash {
            Some(hash) => self.int(1).value(hash),
            None => self.int(0),
        }
    }

    /// Bytes whose number is known from what came before.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.update(bytes);
        self
    }

    pub(crate) fn hash(self) -> ValueHash {
        ValueHash(*self.0.finalize().as_bytes())
    }
}
