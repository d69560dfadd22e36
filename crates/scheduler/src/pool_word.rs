//! What a sub-cluster says to all its models.

use symphony_types::Nanos;

use crate::pressure::Pressure;

/// What models cannot know by themselves, since it is a matter of all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolWord {
    /// How hard the sub-cluster is pressed (docs/adr/0011).
    pub pressure: Pressure,
    /// How long before the end of its window hope lets a batch start at the most (docs/adr/0008); [`Nanos::MAX`] if as early as
    /// it likes.
    pub hope_max: Nanos,
}

impl PoolWord {
    /// Nothing to give up, and no limit: what holds as long as nothing is said.
    pub const NONE: Self = Self { pressure: Pressure::NONE, hope_max: Nanos::MAX };
}

impl Default for PoolWord {
    fn default() -> Self {
        Self::NONE
    }
}

impl From<Pressure> for PoolWord {
    fn from(pressure: Pressure) -> Self {
        Self { pressure, ..Self::NONE }
    }
}
