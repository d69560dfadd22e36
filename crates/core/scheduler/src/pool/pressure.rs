//! How hard a sub-cluster is pressed: the share of its requests that a model of value one has to give up.

use std::fmt;

use symphony_types::RequestValue;

/// Nobody sheds more than this: one request in twenty gets through, so that the rates of a model that is worth little
/// stay known, and with them what it would need.
const SHARE_MAX: f64 = 0.95;

/// The price that all models of a sub-cluster pay for overload, in millionths: a model of value v gives up the share
/// pressure / v of its requests ([ADR 11](../../../../docs/adr/0011-fair-shedding.md)). Zero without overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pressure(u32);

impl Pressure {
    /// Nothing has to be given up.
    pub const NONE: Self = Self(0);
    /// At this pressure even models of the largest value shed all that anybody sheds.
    pub const MAX: Self = Self(1_000_000_000);

    /// From millionths; what is beyond [`Pressure::MAX`] is cut.
    #[must_use]
    pub const fn from_millionths(millionths: u32) -> Self {
        if millionths > Self::MAX.0 { Self::MAX } else { Self(millionths) }
    }

    /// In millionths.
    #[must_use]
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// From a share of the requests of a model of value one; beyond 1 if others are worth more.
    #[must_use]
    pub fn from_share(share: f64) -> Self {
        // Casts of floats saturate.
        Self::from_millionths((share * 1e6).round() as u32)
    }

    /// The pressure from which on models of this value, and all that are worth less, shed all that anybody sheds.
    #[must_use]
    pub(crate) fn all_from(value: RequestValue) -> Self {
        Self::from_share(SHARE_MAX * value.number())
    }

    /// The share that a model of value one would shed if there were no limit.
    #[must_use]
    pub fn share(self) -> f64 {
        f64::from(self.0) / 1e6
    }

    /// The share of its requests that a model of this value would shed if there were no limit.
    #[must_use]
    pub(crate) fn share_in_full(self, value: RequestValue) -> f64 {
        self.share() / value.number()
    }

    /// The share of its requests that a model of this value sheds.
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
