//! The pressure on a sub-cluster: the share of requests that a model of value one must shed.

use std::fmt;

use symphony_types::RequestValue;

/// The limit on shedding: one request in twenty is admitted, so that the rate and demand of a model of low value remain
/// measurable.
const SHARE_MAX: f64 = 0.95;

/// The price of overload for all models of a sub-cluster, in millionths: a model of value v sheds the share pressure /
/// v of its requests ([ADR 11](../../../../docs/adr/0011-fair-shedding.md)). Zero without overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pressure(u32);

impl Pressure {
    /// No shedding.
    pub const NONE: Self = Self(0);
    /// At this pressure even models of the largest value shed up to the limit.
    pub const MAX: Self = Self(1_000_000_000);

    /// From millionths; values beyond [`Pressure::MAX`] are cut.
    #[must_use]
    pub const fn from_millionths(millionths: u32) -> Self {
        if millionths > Self::MAX.0 { Self::MAX } else { Self(millionths) }
    }

    /// The share that models of value 1 shed, in millionths; beyond 10⁶ if others have a higher value.
    #[must_use]
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// From the share that a model of value one sheds; beyond 1 if other models have a higher value.
    #[must_use]
    pub fn from_share(share: f64) -> Self {
        // Float-to-integer casts saturate.
        Self::from_millionths((share * 1e6).round() as u32)
    }

    /// The pressure from which on models of this value and below shed up to the limit.
    #[must_use]
    pub(crate) fn all_from(value: RequestValue) -> Self {
        Self::from_share(SHARE_MAX * value.number())
    }

    /// The share that a model of value one would shed without the limit.
    #[must_use]
    pub fn share(self) -> f64 {
        f64::from(self.0) / 1e6
    }

    /// The share that a model of this value would shed without the limit.
    #[must_use]
    pub(crate) fn share_in_full(self, value: RequestValue) -> f64 {
        self.share() / value.number()
    }

    /// The share that a model of this value sheds.
    #[must_use]
    pub fn share_of(self, value: RequestValue) -> f64 {
        self.share_in_full(value).min(SHARE_MAX)
    }
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.share())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_worth_more_sheds_less_and_nobody_sheds_everything() {
        let value = |number| RequestValue::from_number(number).unwrap();
        let pressure = Pressure::from_share(0.4);
        assert_eq!([1.0, 4.0, 0.5, 0.1].map(|number| pressure.share_of(value(number))), [0.4, 0.1, 0.8, SHARE_MAX]);
        assert_eq!(Pressure::MAX.share_of(RequestValue::MAX), SHARE_MAX);
        assert_eq!(Pressure::all_from(value(4.0)).share_of(value(4.0)), SHARE_MAX);
        assert_eq!(Pressure::from_share(f64::INFINITY), Pressure::MAX);
        assert_eq!([-1.0, f64::NAN].map(Pressure::from_share), [Pressure::NONE; 2]);
    }
}
