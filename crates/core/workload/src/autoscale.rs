//! How the number of GPUs follows the load.

use symphony_controllers::{Autoscaler, AutoscalerSettings, KindSettings, SettingsError};
use symphony_policy::PolicySpec;
use symphony_types::{GPU_CLASSES_MAX, Nanos};

use crate::check::Check;
use crate::error::ScenarioError;
use crate::limits::{DURATION_S_MAX, PRICE_MAX};
use crate::specs::{GpuSpec, ModelSpec};
use crate::text::{AutoscaleText, ScenarioText};

/// The default time from an order to a serving GPU: a process on a running machine that loads its models.
const PROVISION_S: f64 = 10.0;
/// The default period of the autoscaler.
const PERIOD_S: f64 = 1.0;
/// The shortest period: no host could act on more than a thousand decisions per second.
const PERIOD_S_MIN: f64 = 1e-3;

/// The autoscaler of a scenario. Every `[[gpu]]` is one of its kinds, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Autoscale {
    /// The autoscaler at the start, without measurements.
    pub autoscaler: Autoscaler,
    /// GPUs that serve from the start, by kind.
    pub start: Vec<u32>,
    /// Time from an order to a serving GPU.
    pub provision: Nanos,
    /// Time between two decisions of the autoscaler.
    pub period: Nanos,
    /// What all GPUs may cost per hour; with it, kinds are chosen by their prices, which all have.
    pub budget_per_hour: Option<f64>,
}

impl Autoscale {
    pub(crate) fn check(
        check: &Check<'_>,
        text: &ScenarioText,
        policy: &PolicySpec,
        gpus: &[GpuSpec],
        models: &[ModelSpec],
    ) -> Result<Option<Self>, ScenarioError> {
        let Some(autoscale) = &text.autoscale else {
            for (position, gpu) in text.gpu.iter().enumerate() {
                for (name, value) in [("start", gpu.start), ("min", gpu.min)] {
                    if let Some(value) = value {
                        return check.refuse(
                            format!("gpu.{position}.{name}"),
                            "[autoscale] where this is given",
                            value,
                        );
                    }
                }
            }
            return Ok(None);
        };
        if !matches!(policy, PolicySpec::Queues(_)) {
            let expected = "a policy that GPUs may join and leave: symphony, auto, eager, timeout or clipper";
            return check.refuse("policy", expected, policy);
        }
        if !text.failure.is_empty() {
            return check.refuse("failure", "no failures together with [autoscale]", text.failure.len());
        }
        let budget_per_hour = budget(check, autoscale, text)?;
        let (mut start, mut kinds) = (Vec::new(), Vec::new());
        let first = capacity(models, &gpus[0]);
        for (position, (gpu, spec)) in text.gpu.iter().zip(gpus).enumerate() {
            let within = |name: &str, value: u32| {
                let key = format!("gpu.{position}.{name}");
                check.number(&key, value.into(), 0.0, gpu.count.into()).map(|_| value)
            };
            start.push(within("start", gpu.start.unwrap_or(gpu.count))?);
            // Measurements need at least one GPU. Which that is, the budget decides.
            let least = u32::from(position == 0 && budget_per_hour.is_none());
            let min = within("min", gpu.min.unwrap_or(least))?;
            kinds.push(KindSettings { min, max: gpu.count, capacity: capacity(models, spec) / first });
        }
        let provision_s = autoscale.provision_s.unwrap_or(PROVISION_S);
        let provision =
            Nanos::from_secs_f64(check.number("autoscale.provision_s", provision_s, 0.0, DURATION_S_MAX)?);
        let period_s = autoscale.period_s.unwrap_or(PERIOD_S);
        let period =
            Nanos::from_secs_f64(check.number("autoscale.period_s", period_s, PERIOD_S_MIN, DURATION_S_MAX)?);
        let settings = settings(check, autoscale, AutoscalerSettings::new(kinds))?;
        match Autoscaler::new(settings) {
            Ok(autoscaler) => Ok(Some(Self { autoscaler, start, provision, period, budget_per_hour })),
            Err(SettingsError { key, expected, got }) => {
                let unit = if key.ends_with("_window") { "_s" } else { "" };
                check.refuse(format!("autoscale.{key}{unit}"), expected, got)
            }
        }
    }
}

/// The budget, if there is one: every kind has a price, and no least number.
fn budget(check: &Check<'_>, autoscale: &AutoscaleText, text: &ScenarioText) -> Result<Option<f64>, ScenarioError> {
    let Some(budget_per_hour) = autoscale.budget_per_hour else { return Ok(None) };
    let key = "autoscale.budget_per_hour";
    let budget_per_hour = check.positive(key, budget_per_hour, PRICE_MAX)?;
    if text.gpu.len() > GPU_CLASSES_MAX {
        let expected = format!("at most {GPU_CLASSES_MAX} kinds where there is a budget");
        return check.refuse("gpu", &expected, text.gpu.len());
    }
    let mut cheapest = f64::INFINITY;
    for (position, gpu) in text.gpu.iter().enumerate() {
        let Some(price_per_hour) = gpu.price_per_hour else {
            return check.refuse(format!("gpu.{position}.price_per_hour"), "a price, where there is a budget", "none");
        };
        if let Some(min) = gpu.min {
            return check.refuse(format!("gpu.{position}.min"), "none where there is a budget, which decides", min);
        }
        cheapest = cheapest.min(price_per_hour);
    }
    if budget_per_hour < cheapest {
        return check.refuse(key, &format!("at least {cheapest}, the price of the cheapest kind"), budget_per_hour);
    }
    Ok(Some(budget_per_hour))
}

/// The defaults, overridden by the text.
fn settings(
    check: &Check<'_>,
    text: &AutoscaleText,
    defaults: AutoscalerSettings,
) -> Result<AutoscalerSettings, ScenarioError> {
    let span = |name: &str, value_s: Option<f64>, default: Nanos| match value_s {
        None => Ok(default),
        Some(value_s) => {
            check.number(&format!("autoscale.{name}"), value_s, 0.0, DURATION_S_MAX).map(Nanos::from_secs_f64)
        }
    };
    Ok(AutoscalerSettings {
        bad_rate_max: text.bad_rate_max.unwrap_or(defaults.bad_rate_max),
        reserve: text.reserve.unwrap_or(defaults.reserve),
        reserve_min: text.reserve_min.unwrap_or(defaults.reserve_min),
        release_band: text.release_band.unwrap_or(defaults.release_band),
        up_window: span("up_window_s", text.up_window_s, defaults.up_window)?,
        down_window: span("down_window_s", text.down_window_s, defaults.down_window)?,
        down_after_up: span("down_after_up_s", text.down_after_up_s, defaults.down_after_up)?,
        up_after_down: span("up_after_down_s", text.up_after_down_s, defaults.up_after_down)?,
        up_step_max: text.up_step_max.unwrap_or(defaults.up_step_max),
        down_step_max: text.down_step_max.unwrap_or(defaults.down_step_max),
        down_period: span("down_period_s", text.down_period_s, defaults.down_period)?,
        kinds: defaults.kinds,
    })
}

/// Capacity of a GPU of this kind in requests per second, with all models by their shares and in their largest batches.
fn capacity(models: &[ModelSpec], gpu: &GpuSpec) -> f64 {
    let seconds = |model: &ModelSpec| {
        let profile = &model.profiles[gpu.class.index()];
        let batch = profile.batch_max();
        model.share * model.items.mean() * profile.latency(batch).as_secs_f64() / f64::from(batch)
    };
    1.0 / models.iter().map(seconds).sum::<f64>()
}
