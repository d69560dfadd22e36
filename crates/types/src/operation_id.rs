//! The id of an operator's command.

use std::fmt;
use std::str::FromStr;

use rkyv::{Archive, Deserialize, Serialize};

/// Makes an operator's command idempotent: a retry carries the same id, and the command is executed once. The sender
/// draws the id from 128 random bits, so that no two commands share one. Zero is not a valid id.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(u128);

impl OperationId {
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
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A text that is no operation id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no operation id; expected 32 hexadecimal digits, not all of them 0")]
pub struct NoOperationId(String);

/// Parses the format that [`fmt::Display`] writes.
impl FromStr for OperationId {
    type Err = NoOperationId;

    fn from_str(text: &str) -> Result<Self, NoOperationId> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        let found = number.filter(|&number| number != 0).map(Self);
        // The quotation in the error is bounded, whatever the input was.
        found.ok_or_else(|| NoOperationId(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_id_is_read_as_it_is_written() {
        let id = OperationId::new(0x9a3f);
        assert_eq!(id.to_string(), "00000000000000000000000000009a3f");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF".parse(), Ok(OperationId::new(u128::MAX)));
        for wrong in ["", "9a3f", &"0".repeat(32), &"1".repeat(33), &format!("+{}", "1".repeat(31)), &"x".repeat(32)] {
            assert!(wrong.parse::<OperationId>().is_err(), "{wrong}");
        }
    }
}
