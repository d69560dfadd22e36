//! Points in time and spans of time, both in nanoseconds.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

use rkyv::{Archive, Deserialize, Serialize};

/// A point in time: nanoseconds since an origin that only the host of the decision objects knows.
///
/// In production the origin is a reading of the monotonic clock at start-up; in the simulator it is the start of the
/// scenario. Points of different processes are not comparable; messages carry durations ([`Nanos`]) instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A span of time in nanoseconds, never negative.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(u64);

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than every other point: "never", "busy for ever".
    pub const NEVER: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the origin.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        float(self.0) / 1e9
    }

    /// The span from `earlier` to `self`, zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The longest SLO of a model and the longest deadline of a request: 1 h. State is kept until the deadline, and a
/// longer SLO is most likely given in the wrong unit.
pub const SLO_MAX: Nanos = Nanos::from_millis(3_600_000);

impl Nanos {
    /// The empty span.
    pub const ZERO: Self = Self(0);
    /// The longest span; as a latency it means "impossible".
    pub const MAX: Self = Self(u64::MAX);

    /// A span of `nanos` nanoseconds.
    #[must_use]
    pub const fn new(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A span of `micros` microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// A span of `millis` milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// A span of `millis` milliseconds, rounded to the nanosecond; negative and NaN become zero.
    #[must_use]
    pub fn from_millis_f64(millis: f64) -> Self {
        Self(rounded(millis * 1e6))
    }

    /// A span of `secs` seconds, rounded to the nanosecond; negative and NaN become zero.
    #[must_use]
    pub fn from_secs_f64(secs: f64) -> Self {
        Self(rounded(secs * 1e9))
    }

    /// Nanoseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Milliseconds.
    #[must_use]
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        float(self.0) / 1e9
    }

    /// `self − other`, zero if `other` is longer.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `self / times`, rounded down; itself if `times` is zero.
    #[must_use]
    pub const fn divided_by(self, times: u32) -> Self {
        if times == 0 { self } else { Self(self.0 / times as u64) }
    }

    /// `self × times`, at most [`Nanos::MAX`].
    #[must_use]
    pub const fn saturating_mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

/// Converts to a float as a signed number: one instruction, where an unsigned number takes several dependent ones. Few
/// spans reach 2^63 ns, about 300 years.
#[inline]
fn float(number: u64) -> f64 {
    i64::try_from(number).map_or_else(|_| unsigned(number), |signed| signed as f64)
}

/// A function of its own, since the compiler would otherwise merge both conversions into the slow one.
#[cold]
#[inline(never)]
fn unsigned(number: u64) -> f64 {
    number as f64
}

/// 2^53: floats of 64 bits have no fractions from here on.
const WHOLE: f64 = (1_u64 << 53) as f64;

/// The nearest integer, halves rounded up: the result of `f64::round`, which is a function call on processors without a
/// rounding instruction. Negative numbers and NaN become zero.
#[inline]
fn rounded(number: f64) -> u64 {
    if !(0.0..WHOLE).contains(&number) {
        // Float-to-integer casts saturate.
        return number as u64;
    }
    // The difference to the truncated number is exact.
    let whole = number as i64;
    (whole + i64::from(number - whole as f64 >= 0.5)) as u64
}

// All arithmetic saturates: "never" plus anything stays "never", and a deadline before the origin is the origin, not a
// panic.
impl Add<Nanos> for Time {
    type Output = Self;
    fn add(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Nanos> for Time {
    type Output = Self;
    fn sub(self, span: Nanos) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl AddAssign<Nanos> for Time {
    fn add_assign(&mut self, span: Nanos) {
        *self = *self + span;
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl SubAssign for Nanos {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl From<std::time::Duration> for Nanos {
    fn from(duration: std::time::Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for std::time::Duration {
    fn from(span: Nanos) -> Self {
        Self::from_nanos(span.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NEVER { f.write_str("never") } else { write!(f, "{:.6} s", self.as_secs_f64()) }
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.as_millis_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_absorbs_and_the_origin_holds() {
        assert_eq!(Time::NEVER + Nanos::from_millis(1), Time::NEVER);
        assert_eq!(Time::ZERO - Nanos::from_millis(1), Time::ZERO);
        assert_eq!(Time::from_nanos(5).since(Time::from_nanos(9)), Nanos::ZERO);
    }

    #[test]
    fn fractions_of_milliseconds_round_to_the_nanosecond() {
        assert_eq!(Nanos::from_millis_f64(1.053), Nanos::new(1_053_000));
        assert_eq!(Nanos::from_millis_f64(-1.0), Nanos::ZERO);
        assert_eq!(Nanos::from_millis_f64(f64::NAN), Nanos::ZERO);
    }

    #[test]
    fn rounding_is_that_of_the_language() {
        let near = |middle: f64| [middle.next_down(), middle, middle.next_up()];
        let powers =
            (-3..70).flat_map(|power| near(2.0_f64.powi(power)).into_iter().chain(near(2.0_f64.powi(power) + 0.5)));
        let special = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MAX, f64::MIN_POSITIVE, 0.0, -0.0, 0.3, 0.7];
        for number in powers.chain(special).chain((0..1000).flat_map(|n| near(f64::from(n) / 8.0))) {
            for number in [number, -number] {
                assert_eq!(rounded(number), number.round() as u64, "{number}");
            }
        }
    }
}
