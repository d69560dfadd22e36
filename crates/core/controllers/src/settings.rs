//! Settings of the autoscaler.

use symphony_types::Nanos;

/// The most GPUs of one kind: the limit of one rank thread.
pub const SCALED_GPUS_MAX: u32 = 1 << 16;

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
    /// The bad rate above which GPUs are ordered: half of the one percent that goodput allows.
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
    /// What was expected.
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
            bad_rate_max: 0.005,
            reserve: 0.05,
            reserve_min: 0.025,
            release_band: 0.06,
            up_window: Nanos::from_millis(3_000),
            down_window: Nanos::from_millis(60_000),
            down_after_up: Nanos::from_millis(60_000),
            up_after_down: Nanos::from_millis(10_000),
            up_step_max: 1.0,
            down_step_max: 0.1,
            down_period: Nanos::from_millis(10_000),
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
