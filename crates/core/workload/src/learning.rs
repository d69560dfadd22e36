//! Settings of learning from the ends of batches, in the format of `[scheduler.learning]` in configurations.

use symphony_controllers::{LearningSettings, OnlineProfileSettings, StragglerSettings};
use symphony_policy::PolicySpec;
use symphony_types::Nanos;

use crate::check::Check;
use crate::error::ScenarioError;
use crate::limits::DURATION_S_MAX;
use crate::text::{LearningText, ScenarioText};

/// The largest slowdown to search for, in percent: batches count up to twice the slowdown searched for.
const SLOW_PERCENT_MAX: f64 = 1000.0;
/// The largest share of the GPUs that may be set aside at once, in percent: half must be left to be compared with.
pub const QUARANTINED_PERCENT_MAX: u32 = 50;
/// The most batches of a trial.
const TRIAL_BATCHES_MAX: u32 = 100_000;

pub(crate) fn check(
    check: &Check<'_>,
    text: &ScenarioText,
    policy: &PolicySpec,
) -> Result<LearningSettings, ScenarioError> {
    let Some(learning) = &text.learning else { return Ok(LearningSettings::default()) };
    if !matches!(policy, PolicySpec::Queues(_)) {
        let expected = "a policy that learns from its batches: symphony, auto, eager, timeout or clipper";
        return check.refuse("policy", expected, policy);
    }
    if text.autoscale.is_some() {
        return check.refuse("learning", "no [learning] together with [autoscale]", "both");
    }
    let profiles = profiles(check, learning)?;
    let stragglers = stragglers(check, learning)?;
    Ok(LearningSettings {
        profiles: learning.profiles.unwrap_or(true).then_some(profiles),
        stragglers: learning.stragglers.unwrap_or(true).then_some(stragglers),
    })
}

fn span(check: &Check<'_>, name: &str, value_s: Option<f64>, default: Nanos) -> Result<Nanos, ScenarioError> {
    let Some(value_s) = value_s else { return Ok(default) };
    check.positive(&format!("learning.{name}"), value_s, DURATION_S_MAX).map(Nanos::from_secs_f64)
}

fn profiles(check: &Check<'_>, text: &LearningText) -> Result<OnlineProfileSettings, ScenarioError> {
    let defaults = OnlineProfileSettings::default();
    let publish_every = span(check, "profile_period_s", text.profile_period_s, defaults.publish_every)?;
    Ok(OnlineProfileSettings { publish_every, ..defaults })
}

fn stragglers(check: &Check<'_>, text: &LearningText) -> Result<StragglerSettings, ScenarioError> {
    let defaults = StragglerSettings::default();
    let percent = |name: &str, value: Option<f64>, default: f64, min: f64, max: f64| match value {
        None => Ok(default),
        Some(value) => check.number(&format!("learning.{name}"), value, min, max).map(|percent| percent / 100.0),
    };
    let slow = percent("slow_percent", text.slow_percent, defaults.slow_factor - 1.0, 5.0, SLOW_PERCENT_MAX)?;
    let most = f64::from(QUARANTINED_PERCENT_MAX);
    let share_max = percent("quarantined_percent_max", text.quarantined_percent_max, defaults.share_max, 0.0, most)?;
    let pause = span(check, "quarantine_s", text.quarantine_s, defaults.pause)?;
    let trial_batches = text.trial_batches.unwrap_or(defaults.trial_batches);
    check.number("learning.trial_batches", trial_batches.into(), 1.0, TRIAL_BATCHES_MAX.into())?;
    let pause_max = defaults.pause_max.max(pause);
    Ok(StragglerSettings { slow_factor: 1.0 + slow, share_max, pause, pause_max, trial_batches, ..defaults })
}
