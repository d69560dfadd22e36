//! Carries out a rollout on a cluster, of a model or of a pipeline.

use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient as Grpc;
use symphony_protocol::view::{NoGpu, Traffic, View};
use symphony_transport::{AGREE_WITHIN, ControlClient, ControlError, fresh_operation_id};

use crate::pipeline_calls::{load_pipeline, unload_pipeline};
use crate::rollout::{Next, Rollout};

/// How long a model may take to load: 16 GB from a disk at 100 MB/s take 160 s, and a runtime's preparation takes
/// seconds for each batch size.
pub const LOAD_WITHIN: Duration = Duration::from_secs(300);

/// Why a cluster does not serve the wanted versions.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The cluster did not answer, or refused.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// It was tried and failed; the previous versions are still served.
    #[error("{reason}")]
    Failed {
        /// The reason, as the cluster reported it.
        reason: String,
        /// The log index of the cluster's answer, for callers that watch the cluster themselves.
        as_of: u64,
    },
    /// There is no report on the result yet.
    #[error("it is not done after {} s: {}; see `symphony get models`", .within.as_secs(), waits(.no_gpu.as_ref()))]
    Late {
        /// The time given.
        within: Duration,
        /// The version that no GPU takes, and why.
        no_gpu: Option<(String, NoGpu)>,
    },
    /// A pipeline is loaded and cannot be asked yet.
    #[error(
        "pipeline `{pipeline}` is not ready after {} s: {why}; see `symphony describe pipeline {pipeline}`",
        .within.as_secs()
    )]
    Unready {
        /// Its name.
        pipeline: String,
        /// The time given.
        within: Duration,
        /// What it waits for.
        why: String,
    },
}

fn waits(no_gpu: Option<&(String, NoGpu)>) -> String {
    match no_gpu {
        Some((name, why)) => format!("`{name}` waits: {why}"),
        None => "no backend of the sub-cluster has reported".to_owned(),
    }
}

/// Makes the cluster serve the versions of the rollout; returns when it does, or cannot. Nothing is rolled back but a
/// canary: a repetition continues from there. `report` gets each next step once, before it is done. Returns the log
/// index from which on the versions are served, for callers that watch the cluster themselves.
///
/// # Errors
/// If the cluster refuses, a model cannot be loaded, a canary answers badly, or there is no progress for `within`: no
/// backend reports, no split meets the budget of a pipeline, or no replica answers.
pub async fn apply(
    control: &ControlClient,
    mut rollout: Rollout,
    within: Duration,
    mut report: impl FnMut(&Next) + Send,
) -> Result<u64, ApplyError> {
    // The first read is linearizable: an older view might lack existing models.
    let mut from = control.get(true, AGREE_WITHIN.min(within)).await?.applied_index;
    let mut view = control.watch("model repository");
    let (mut waiting, mut last) = (None, None);
    // What the cluster said of the pipeline when it was loaded. It may be wrong, since the leader splits by what was
    // measured: it is told if the pipeline is not ready in time.
    let mut warning = String::new();
    // A view that was asked for, with the load in it.
    let mut fetched: Option<Arc<View>> = None;
    loop {
        let current = fetched.take().unwrap_or_else(|| Arc::clone(&view.borrow_and_update()));
        let is_old = current.applied_index < from;
        let next = if is_old { rollout.wait() } else { rollout.next(&current, Instant::now()) };
        if last.as_ref() != Some(&next) {
            report(&next);
            last = Some(next.clone());
        }
        if !matches!(next, Next::Wait(_) | Next::WaitForPipeline { .. }) {
            waiting = None;
        }
        let operation_id = || fresh_operation_id().to_string();
        match next {
            Next::Load(spec) => {
                let request = pb::LoadModelRequest { spec: Some(spec.as_ref().into()), operation_id: operation_id() };
                let call = |mut client: Grpc<_>| {
                    let request = request.clone();
                    async move { client.load_model(request).await }
                };
                control.call(within, call).await?;
            }
            Next::Change(spec) => {
                let request = pb::ChangeModelRequest {
                    name: spec.name.clone(),
                    slo_ns: Some(spec.slo.get()),
                    policy: Some(spec.policy.to_string()),
                    value_thousandths: Some(spec.value.thousandths()),
                    operation_id: operation_id(),
                };
                change_model(control, request, within).await?;
                from = control.get(true, within).await?.applied_index;
            }
            Next::SetTraffic(model, traffic) => {
                set_traffic(control, &model, &traffic, operation_id(), within).await?;
                from = control.get(true, within).await?.applied_index;
            }
            Next::Unload(name) => {
                let request = pb::UnloadModelRequest { name, operation_id: operation_id() };
                let call = |mut client: Grpc<_>| {
                    let request = request.clone();
                    async move { client.unload_model(request).await }
                };
                control.call(within, call).await?;
                // The watched view may be older than that; the returned index must not be, or its reader would still
                // see the model.
                from = control.get(true, within).await?.applied_index;
            }
            Next::LoadPipeline(declaration) => {
                warning = load_pipeline(control, &declaration, fresh_operation_id()).await?.warning;
            }
            Next::UnloadPipeline(name) => {
                unload_pipeline(control, &name, fresh_operation_id()).await?;
                from = control.get(true, within).await?.applied_index;
            }
            Next::Wait(_) | Next::WaitForPipeline { .. } => {
                let since = *waiting.get_or_insert_with(Instant::now);
                let left = within.saturating_sub(since.elapsed());
                let changed = tokio::time::timeout(left, view.changed()).await;
                let changed = changed.map_err(|_| match next {
                    Next::WaitForPipeline { pipeline, why } => {
                        let why = if warning.is_empty() { why } else { format!("{why}; {warning}") };
                        ApplyError::Unready { pipeline, within, why }
                    }
                    Next::Wait(no_gpu) => ApplyError::Late { within, no_gpu },
                    _ => ApplyError::Late { within, no_gpu: None },
                })?;
                let ended = || ApplyError::Failed { reason: "the cluster's view ended".into(), as_of: 0 };
                changed.map_err(|_| ended())?;
            }
            Next::WaitFor(time) => {
                tokio::time::sleep(time).await;
                fetched = Some(Arc::new(control.get(true, within).await?));
            }
            Next::Done => return Ok(current.applied_index),
            Next::Failed(reason) => return Err(ApplyError::Failed { reason, as_of: current.applied_index }),
        }
    }
}

/// Changes how the cluster serves a model. Returns what the operator should know; empty if there is nothing.
///
/// # Errors
/// If it does not answer within this time, or refuses.
pub async fn change_model(
    control: &ControlClient,
    request: pb::ChangeModelRequest,
    within: Duration,
) -> Result<String, ControlError> {
    let call = |mut client: Grpc<_>| {
        let request = request.clone();
        async move { client.change_model(request).await }
    };
    Ok(control.call(within, call).await?.warning)
}

/// Makes the cluster split the requests for a model or pipeline that name no version.
///
/// # Errors
/// If it does not answer within this time, or refuses.
pub async fn set_traffic(
    control: &ControlClient,
    model: &str,
    traffic: &Traffic,
    operation_id: String,
    within: Duration,
) -> Result<(), ControlError> {
    let request = pb::SetTrafficRequest { traffic: Some((&model.to_owned(), traffic).into()), operation_id };
    let call = |mut client: Grpc<_>| {
        let request = request.clone();
        async move { client.set_traffic(request).await }
    };
    control.call(within, call).await.map(drop)
}
