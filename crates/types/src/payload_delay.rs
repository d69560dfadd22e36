//! How long the transfer of inputs takes, as a linear function of their bytes.

use crate::time::Nanos;

/// A measured delay that was not repeated for this long is forgotten, both by the backend that reported it and by the
/// receivers of the report: a network's speed changes over time.
pub const PAYLOAD_DELAY_FORGOTTEN_AFTER: Nanos = Nanos::from_millis(600_000);

/// Bytes in a MiB.
const MIB: u64 = 1 << 20;

/// A delay that grows linearly with the number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayloadDelay {
    /// The part that does not depend on the bytes.
    pub fixed: Nanos,
    /// The additional delay per MiB (2^20 bytes).
    pub per_mib: Nanos,
}

impl PayloadDelay {
    /// The delay of `bytes` bytes, rounded up.
    #[must_use]
    pub fn of(self, bytes: u64) -> Nanos {
        let grown = (u128::from(self.per_mib.get()) * u128::from(bytes)).div_ceil(MIB.into());
        Nanos::new(self.fixed.get().saturating_add(u64::try_from(grown).unwrap_or(u64::MAX)))
    }

    /// A delay that is at least as long as either, for any number of bytes.
    #[must_use]
    pub fn or_longer(self, other: Self) -> Self {
        Self { fixed: self.fixed.max(other.fixed), per_mib: self.per_mib.max(other.per_mib) }
    }
}
