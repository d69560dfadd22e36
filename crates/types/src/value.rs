//! The value of a model's requests relative to those of other models.

use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};

/// The relative worth of a model's requests when some must be shed: a model of value 4 loses a quarter of the share
/// that a model of value 1 loses. Stored in thousandths, so that equal values have equal bytes everywhere.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[rkyv(derive(Clone, Copy, Debug))]
pub struct RequestValue(u32);

impl RequestValue {
    /// The default value.
    pub const ONE: Self = Self(1000);
    /// The smallest: a thousandth.
    pub const MIN: Self = Self(1);
    /// The largest: a thousand. Two models then differ by at most a factor of a million, which leaves room in 64 bits.
    pub const MAX: Self = Self(1_000_000);

    /// From a number, rounded to thousandths; `None` unless it is from 0.001 to 1000.
    #[must_use]
    pub fn from_number(number: f64) -> Option<Self> {
        // NaN fails the comparison; within the range the cast cannot overflow.
        let is_in_range = number >= Self::MIN.number() && number <= Self::MAX.number();
        is_in_range.then(|| Self((number * 1000.0).round() as u32))
    }

    /// From thousandths; `None` unless they are 1 to a million.
    #[must_use]
    pub const fn from_thousandths(thousandths: u32) -> Option<Self> {
        if thousandths >= Self::MIN.0 && thousandths <= Self::MAX.0 { Some(Self(thousandths)) } else { None }
    }

    /// The value of a request of this value that is worth `weight` relative to others, within the bounds.
    #[must_use]
    pub const fn times(self, weight: Self) -> Self {
        // At most a million times a million.
        let thousandths = self.0 as u64 * weight.0 as u64 / Self::ONE.0 as u64;
        if thousandths < Self::MIN.0 as u64 {
            Self::MIN
        } else if thousandths > Self::MAX.0 as u64 {
            Self::MAX
        } else {
            Self(thousandths as u32)
        }
    }

    /// The value in thousandths, as it is stored and sent.
    #[must_use]
    pub const fn thousandths(self) -> u32 {
        self.0
    }

    /// As a number.
    #[must_use]
    pub fn number(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

impl Default for RequestValue {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Display for RequestValue {
    /// Prints without trailing zeros: `1`, `0.25`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_thousandths_within_their_bounds() {
        let number = |number| RequestValue::from_number(number).map(RequestValue::thousandths);
        assert_eq!(
            [0.001, 0.25, 1.0, 4.0004, 1000.0].map(number),
            [Some(1), Some(250), Some(1000), Some(4000), Some(1_000_000)]
        );
        assert_eq!([0.0, -1.0, 0.0009, 1000.1, f64::NAN, f64::INFINITY].map(number), [None; 6]);
        let times = |value, weight| RequestValue(value).times(RequestValue(weight)).0;
        assert_eq!([times(2000, 1500), times(1000, 7), times(1, 1), times(900_000, 900_000)], [3000, 7, 1, 1_000_000]);
        assert_eq!((RequestValue::from_thousandths(0), RequestValue::from_thousandths(1_000_001)), (None, None));
        assert_eq!(
            [RequestValue::ONE, RequestValue(250), RequestValue(1)].map(|v| v.to_string()),
            ["1", "0.25", "0.001"]
        );
    }
}
