//! Shares as integers, so that equal shares have equal bytes everywhere.

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::Nanos;

/// The share of the target batch that the window drop protects, in percent. The result is rounded up.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetShare(u8);

impl TargetShare {
    /// All of it, as the authors' code does.
    pub const WHOLE: Self = Self(100);
    /// Three quarters: gives up fewer requests in fluctuations that pass by themselves, and hardly shrinks batches.
    pub const THREE_QUARTERS: Self = Self(75);

    /// `percent` of the target batch; `None` unless it is 1 to 100.
    #[must_use]
    pub const fn from_percent(percent: u32) -> Option<Self> {
        if percent >= 1 && percent <= 100 { Some(Self(percent as u8)) } else { None }
    }

    /// From a share of 1, rounded to percent; `None` unless it is 0.01 to 1.
    #[must_use]
    pub fn from_share(share: f64) -> Option<Self> {
        // NaN is in no range.
        (0.01..=1.0).contains(&share).then(|| Self((share * 100.0).round() as u8))
    }

    /// Unchecked, as decoded bytes can contain it.
    #[cfg(test)]
    pub(crate) const fn unchecked(percent: u8) -> Self {
        Self(percent)
    }

    /// In percent of the target batch.
    #[must_use]
    pub const fn percent(self) -> u32 {
        self.0 as u32
    }

    /// As a share of 1.
    #[must_use]
    pub fn share(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// The batch to protect; at least 1 of a target of at least 1.
    #[must_use]
    pub const fn of(self, target: u32) -> u32 {
        (target as u64 * self.0 as u64).div_ceil(100) as u32
    }
}

/// A share of a model's SLO, in millionths.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct SloShare(u32);

impl SloShare {
    const WHOLE: u32 = 1_000_000;
    /// The default wait of policy `timeout`.
    pub const QUARTER: Self = Self(Self::WHOLE / 4);

    /// From a share of 1, rounded to millionths; `None` unless it is 0 to 1.
    #[must_use]
    pub fn from_share(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then(|| Self((share * f64::from(Self::WHOLE)).round() as u32))
    }

    pub(crate) const fn millionths(self) -> u32 {
        self.0
    }

    /// Whether it is at most one: decoded bytes can contain more.
    pub(crate) const fn is_within(self) -> bool {
        self.0 <= Self::WHOLE
    }

    /// Unchecked, as decoded bytes can contain it.
    #[cfg(test)]
    pub(crate) const fn unchecked(millionths: u32) -> Self {
        Self(millionths)
    }

    /// As a share of 1.
    #[must_use]
    pub fn share(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE)
    }

    /// This share of an SLO.
    #[must_use]
    pub fn of(self, slo: Nanos) -> Nanos {
        Nanos::from_secs_f64(slo.as_secs_f64() * self.share())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_stay_within_their_bounds() {
        assert_eq!([0, 101].map(TargetShare::from_percent), [None; 2]);
        assert_eq!([0.0, 0.009, 1.1, -1.0, f64::NAN].map(TargetShare::from_share), [None; 5]);
        assert_eq!([-0.1, 1.1, f64::NAN, f64::INFINITY].map(SloShare::from_share), [None; 4]);
        for percent in 1..=100 {
            let share = TargetShare::from_percent(percent).unwrap();
            assert_eq!(TargetShare::from_share(share.share()), Some(share));
        }
        assert_eq!(TargetShare::THREE_QUARTERS.of(10), 8);
        assert_eq!(SloShare::QUARTER.of(Nanos::from_millis(100)), Nanos::from_millis(25));
        assert_eq!(SloShare::from_share(0.000_000_6).map(SloShare::share), Some(0.000_001));
    }
}
