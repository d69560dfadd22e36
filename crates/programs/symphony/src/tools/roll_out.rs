//! Carries a roll-out of a folder's versions out, and tells the operator each step.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use symphony_protocol::view::{NoGpu, Traffic};
use symphony_repository::{ApplyError, Canary, Next, Rollout, apply};
use symphony_transport::{AGREE_WITHIN, ControlClient, ControlError};

use super::operation::query_error;
use crate::cli::CanaryArgs;
use crate::exit::bad_input;

/// With a canary, if one is asked for.
pub(super) fn tried_out(rollout: Rollout, args: &CanaryArgs) -> anyhow::Result<Rollout> {
    let (percents, bad_max) = (args.canary.clone(), args.canary_bad_max);
    if percents.is_empty() {
        return Ok(rollout);
    }
    if !(0.0..=1.0).contains(&bad_max) {
        return Err(bad_input(format!("--canary-bad-max {bad_max}: expected a number from 0 to 1")));
    }
    if !percents.is_sorted_by(|a, b| a < b) {
        return Err(bad_input("--canary: expected steps that grow, as 5,50"));
    }
    let step = Duration::from_secs(args.canary_step_s);
    eprintln!("each step lasts {} s, and longer, up to ten times, if it sees fewer than 50 requests", step.as_secs());
    Ok(rollout.with_canary(Canary { percents, step, bad_max }))
}

/// Until the cluster serves the model or pipeline of that name as the folder says. `kind` is which of both it is.
pub(super) async fn roll_out(
    control: &ControlClient,
    (kind, name): (&str, &str),
    rollout: Rollout,
    (folder, newest): (&Path, Option<u64>),
    within: Duration,
) -> anyhow::Result<()> {
    let split = Mutex::new(None);
    let applying = apply(control, rollout, within, |next| match next {
        Next::Load(spec) => eprintln!("{} is loaded", spec.name),
        Next::LoadPipeline(declaration) => eprintln!("{} is loaded", declaration.versioned().loaded_as()),
        Next::Change(spec) => {
            let (slo_ms, policy, value) = (spec.slo.as_millis_f64(), spec.policy, spec.value);
            eprintln!("{} is changed: SLO {slo_ms} ms, policy {policy}, value {value}", spec.name);
        }
        Next::Unload(name) | Next::UnloadPipeline(name) => eprintln!("{name} is unloaded"),
        Next::SetTraffic(name, traffic) => {
            eprintln!("traffic of {name}: {traffic}");
            *split.lock().unwrap_or_else(PoisonError::into_inner) = Some(traffic.clone());
        }
        Next::Wait(Some((name, why))) => warn_no_gpu(name, *why),
        _ => {}
    });
    let applied = tokio::select! {
        applied = applying => Some(applied),
        _ = tokio::signal::ctrl_c() => None,
    };
    let split = split.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let (None | Some(Err(_)), Some(split)) = (&applied, split.filter(|split: &Traffic| !split.is_empty())) {
        eprintln!("the traffic of {name} stays split, {split}; `symphony model traffic` changes it");
    }
    let applied = applied.ok_or_else(|| anyhow::anyhow!("interrupted; the same command goes on from here"))?;
    applied.map_err(|error| match error {
        ApplyError::Failed { .. } | ApplyError::Control(ControlError::Refused(_)) => {
            bad_input(format!("{kind} `{name}` is not served as the folder {} says: {error}", folder.display()))
        }
        other => other.into(),
    })?;
    let view = control.get(true, AGREE_WITHIN).await.map_err(query_error)?;
    if let (Some(split), Some(newest)) = (view.traffic.get(name), newest)
        && !split.weights.is_empty()
        && !split.weights.contains_key(&newest)
    {
        eprintln!(
            "note: version {newest} gets no request that names none: {split}; `symphony model traffic` changes it"
        );
    }
    Ok(())
}

pub(super) fn warn_no_gpu(name: &str, why: NoGpu) {
    eprintln!("model {name} waits: {why}");
}
