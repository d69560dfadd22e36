//! Identifies the problem that a plan answers.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A hash of a problem (FNV-1a, 64 bits), equal on every machine and in every release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    pub(crate) const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    #[must_use]
    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        Self(bytes.iter().fold(self.0, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME)))
    }

    #[must_use]
    pub(crate) fn number(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    #[must_use]
    pub(crate) fn float(self, number: f64) -> Self {
        self.number(number.to_bits())
    }

    /// The length goes first, so that different sequences of texts differ.
    #[must_use]
    pub(crate) fn text(self, text: &str) -> Self {
        self.number(text.len() as u64).bytes(text.as_bytes())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

// As text: many programs parse JSON numbers as floats, which cannot hold 64 bits.
impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let refused = || serde::de::Error::custom(format!("expected 16 hexadecimal digits, got `{text}`"));
        if text.len() != 16 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(refused());
        }
        u64::from_str_radix(&text, 16).map(Self).map_err(|_| refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_comes_back_and_rubbish_is_refused() {
        let print = Fingerprint::EMPTY.text("a").float(1.5);
        let json = serde_json::to_string(&print).unwrap();
        assert_eq!(serde_json::from_str::<Fingerprint>(&json).unwrap(), print);
        for bad in ["\"\"", "\"+123456789abcdef\"", "7", "\"00000000000000000\""] {
            assert!(serde_json::from_str::<Fingerprint>(bad).is_err(), "{bad}");
        }
        assert_ne!(Fingerprint::EMPTY.text("ab").text("c"), Fingerprint::EMPTY.text("a").text("bc"));
    }
}
