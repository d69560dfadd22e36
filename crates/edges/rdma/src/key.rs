//! What opens memory to a reader.

use std::fmt;

/// A key to another's memory. Not shown in logs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub u32);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_shown() {
        assert_eq!(format!("{:?} {:#?}", Key(0x00c0_ffee), Some(Key(12_648_430))), "Key(…) Some(\n    Key(…),\n)");
    }
}
