//! Settings of the autoscaler.

use symphony_types::Nanos;

/// The most GPUs of one kind: the limit of one rank worker.
pub const SCALED_GPUS_MAX: u32 = 1 << 16;

/// Half of the one percent that goodput allows: GPUs are ordered before it is used up.
const BAD_RATE_MAX: f64 = 0.005;
/// Without a reserve a rise of 1 % within the time of provisioning loses requests.
const RESERVE: f64 = 0.05;
/// The reserve holds a rise; when half of it is gone, the rise has come.
const RESERVE_MIN_SHARE: f64 = 0.5;
/// More than the reserve, so that a release does not lead to the next order.
const RELEASE_BAND: f64 = 0.06;
/// Three load reports: a rise is answered in seconds, one late report is not taken for it.
const UP_WINDOW: Nanos = Nanos::from_millis(3_000);
/// Longer than the lulls of a load that holds: its largest need in a minute is what it needs.
const DOWN_WINDOW: Nanos = Nanos::from_millis(60_000);
/// Ordered GPUs come within it, and the load that they were ordered for shows what it needs.
const DOWN_AFTER_UP: Nanos = Nanos::from_millis(60_000);
/// What was released still drains: for this long only losses prove that it was too much.
const UP_AFTER_DOWN: Nanos = Nanos::from_millis(10_000);
/// A share of the GPUs. A sub-cluster doubles at most: more is asked for once these GPUs serve and the load is measured
/// on them.
const UP_STEP_MAX: f64 = 1.0;
/// A share of the GPUs: small steps show a mistake before it is expensive.
const DOWN_STEP_MAX: f64 = 0.1;
/// The effect of one release is measured before the next.
const DOWN_PERIOD: Nanos = Nanos::from_millis(10_000);

/// One GPU kind and its limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KindSettings {
    /// The least number of GPUs.
    pub min: u32,
    /// The largest number of GPUs.
    pub max: u32,
    /// Capacity of one GPU, in a unit that all kinds share: a kind that serves twice as much has twice the number.
    pub capacity: f64,
}

/// The parameters of the law. All shares are fractions of one.
#[derive(Clone, Debug, PartialEq)]
pub struct AutoscalerSettings {
    /// GPU kinds in the order in which GPUs are added. They are released in the reverse order.
    pub kinds: Vec<KindSettings>,
    /// The bad rate above which GPUs are ordered.
    pub bad_rate_max: f64,
    /// The reserve: an idle share for the load that arrives before new GPUs do. Zero is the paper's law.
    pub reserve: f64,
    /// Below this idle share GPUs are ordered before requests are lost.
    pub reserve_min: f64,
    /// A release is at least this share of the GPUs: the gain must be worth the disruption.
    pub release_band: f64,
    /// The window that decides about more GPUs.
    pub up_window: Nanos,
    /// The window whose largest need decides about releases.
    pub down_window: Nanos,
    /// No release within this time after an order.
    pub down_after_up: Nanos,
    /// No order within this time after a release, unless requests are lost.
    pub up_after_down: Nanos,
    /// GPUs on order are at most this share of the serving ones (and at least one).
    pub up_step_max: f64,
    /// One release is at most this share of the GPUs (and at least one).
    pub down_step_max: f64,
    /// The least time between releases.
    pub down_period: Nanos,
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("autoscaling: {key}: expected {expected}, got {got}")]
pub struct SettingsError {
    /// Its name.
    pub key: &'static str,
    /// The range that was expected.
    pub expected: &'static str,
    /// The given value.
    pub got: String,
}

impl AutoscalerSettings {
    /// The defaults for these kinds.
    #[must_use]
    pub const fn new(kinds: Vec<KindSettings>) -> Self {
        Self {
            kinds,
            bad_rate_max: BAD_RATE_MAX,
            reserve: RESERVE,
            reserve_min: RESERVE * RESERVE_MIN_SHARE,
            release_band: RELEASE_BAND,
            up_window: UP_WINDOW,
            down_window: DOWN_WINDOW,
            down_after_up: DOWN_AFTER_UP,
            up_after_down: UP_AFTER_DOWN,
            up_step_max: UP_STEP_MAX,
            down_step_max: DOWN_STEP_MAX,
            down_period: DOWN_PERIOD,
        }
    }

    /// With another reserve.
    #[must_use]
    pub fn with_reserve(self, reserve: f64) -> Self {
        Self { reserve, reserve_min: reserve * RESERVE_MIN_SHARE, ..self }
    }

    /// With all times but the window for more GPUs, which is as short as load reports allow, divided by `times`.
    #[must_use]
    pub fn sped_up(self, times: u32) -> Self {
        Self {
            down_window: self.down_window.divided_by(times),
            down_after_up: self.down_after_up.divided_by(times),
            up_after_down: self.up_after_down.divided_by(times),
            down_period: self.down_period.divided_by(times),
            ..self
        }
    }

    /// # Errors
    /// If a number is out of its range; the message names it.
    pub fn check(&self) -> Result<(), SettingsError> {
        fn refuse(key: &'static str, expected: &'static str, got: impl ToString) -> Result<(), SettingsError> {
            Err(SettingsError { key, expected, got: got.to_string() })
        }
        if self.kinds.is_empty() {
            return refuse("kinds", "at least one GPU kind", "none");
        }
        for kind in &self.kinds {
            if kind.max == 0 || kind.max > SCALED_GPUS_MAX {
                return refuse("max", "1 to 65536 GPUs", kind.max);
            }
            if kind.min > kind.max {
                return refuse("min", "at most the largest number of GPUs", kind.min);
            }
            if !(kind.capacity.is_finite() && kind.capacity > 0.0) {
                return refuse("capacity", "a finite number above 0", kind.capacity);
            }
        }
        let share = |value: f64| (0.0..1.0).contains(&value);
        if !share(self.bad_rate_max) {
            return refuse("bad_rate_max", "a share from 0, below 1", self.bad_rate_max);
        }
        if !share(self.reserve) {
            return refuse("reserve", "a share from 0, below 1", self.reserve);
        }
        if !(0.0..=self.reserve).contains(&self.reserve_min) {
            return refuse("reserve_min", "a share from 0 to the reserve", self.reserve_min);
        }
        if !share(self.release_band) {
            return refuse("release_band", "a share from 0, below 1", self.release_band);
        }
        if !(self.up_step_max.is_finite() && self.up_step_max > 0.0) {
            return refuse("up_step_max", "a finite share above 0", self.up_step_max);
        }
        if !(self.down_step_max > 0.0 && self.down_step_max <= 1.0) {
            return refuse("down_step_max", "a share above 0, at most 1", self.down_step_max);
        }
        if self.up_window == Nanos::ZERO {
            return refuse("up_window", "a time above 0", self.up_window);
        }
        if self.down_window < self.up_window {
            return refuse("down_window", "at least the window for more GPUs", self.down_window);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_sound_and_nonsense_is_named() {
        let kind = KindSettings { min: 1, max: 8, capacity: 1.0 };
        let sound = AutoscalerSettings::new(vec![kind]);
        assert_eq!(sound.check(), Ok(()));
        let wrong: [(&str, AutoscalerSettings); 8] = [
            ("kinds", AutoscalerSettings::new(vec![])),
            ("max", AutoscalerSettings::new(vec![KindSettings { max: 0, min: 0, ..kind }])),
            ("min", AutoscalerSettings::new(vec![KindSettings { min: 9, ..kind }])),
            ("capacity", AutoscalerSettings::new(vec![KindSettings { capacity: f64::NAN, ..kind }])),
            ("bad_rate_max", AutoscalerSettings { bad_rate_max: 1.0, ..sound.clone() }),
            ("reserve_min", AutoscalerSettings { reserve_min: 0.5, ..sound.clone() }),
            ("down_step_max", AutoscalerSettings { down_step_max: f64::NAN, ..sound.clone() }),
            ("down_window", AutoscalerSettings { down_window: Nanos::ZERO, ..sound }),
        ];
        for (key, settings) in wrong {
            assert_eq!(settings.check().map_err(|error| error.key), Err(key));
        }
    }
}
