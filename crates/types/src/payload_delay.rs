//! How long inputs take to come, as a line over their bytes.

use crate::time::Nanos;

/// What was not read for so long is forgotten, and what was told of it, by who told it and by who heard it: a network
/// is not today what it was.
pub const PAYLOAD_DELAY_FORGOTTEN_AFTER: Nanos = Nanos::from_millis(600_000);

/// Bytes in a MiB.
const MIB: u64 = 1 << 20;

/// A delay that grows with the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayloadDelay {
    /// However few they are.
    pub fixed: Nanos,
    /// For each MiB of 2^20 bytes.
    pub per_mib: Nanos,
}

impl PayloadDelay {
    /// Of so many bytes, rounded up.
    #[must_use]
    pub fn of(self, bytes: u64) -> Nanos {
        let grown = (u128::from(self.per_mib.get()) * u128::from(bytes)).div_ceil(MIB.into());
        Nanos::new(self.fixed.get().saturating_add(u64::try_from(grown).unwrap_or(u64::MAX)))
    }

    /// What is as long as either, whatever the bytes.
    #[must_use]
    pub fn or_longer(self, other: Self) -> Self {
        Self { fixed: self.fixed.max(other.fixed), per_mib: self.per_mib.max(other.per_mib) }
    }
}
