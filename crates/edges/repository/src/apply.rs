//! Carries out a rollout on a cluster.

use std::sync::Arc;
use std::time::Duration;

use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient as Grpc;
use symphony_protocol::view::NoGpu;
use symphony_transport::{ControlClient, ControlError, ViewReceiver, fresh_operation_id};

use crate::rollout::{Next, Rollout};

/// How long a model may take to load: 16 GB from a disk at 100 MB/s take 160 s, and a runtime's preparation takes
/// seconds for each batch size.
pub const LOAD_WITHIN: Duration = Duration::from_secs(300);
/// How long the cluster may take to agree to one load or unload.
const AGREE_WITHIN: Duration = Duration::from_secs(10);

/// Why a cluster does not serve the wanted versions.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The cluster did not answer, or refused.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// It was tried and failed; the previous versions are still served.
    #[error("{reason}")]
    Failed {
        /// Why.
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
}

fn waits(no_gpu: Option<&(String, NoGpu)>) -> String {
    match no_gpu {
        Some((name, why)) => format!("`{name}` waits: {why}"),
        None => "no backend of the sub-cluster has reported".to_owned(),
    }
}

/// Makes the cluster serve the versions of the rollout; returns when it does, or cannot. Nothing is rolled back: a
/// repetition continues from there. Returns the log index from which on the versions are served, for callers that
/// watch the cluster themselves. `tell` hears of a version that no GPU takes, and why, whenever that changes.
///
/// # Errors
/// If the cluster refuses, a model cannot be loaded, or that takes longer than `within`.
pub async fn apply(
    control: &ControlClient,
    rollout: Rollout,
    within: Duration,
    tell: impl FnMut(&str, NoGpu),
) -> Result<u64, ApplyError> {
    // The first read is linearizable: an older view might lack existing models.
    let first = control.get(true, AGREE_WITHIN.min(within)).await?;
    let view = control.watch("model repository");
    let mut no_gpu = None;
    let following = follow(control, rollout, first.applied_index, view, (&mut no_gpu, tell));
    let ended = tokio::time::timeout(within, following).await;
    ended.unwrap_or(Err(ApplyError::Late { within, no_gpu }))
}

async fn follow(
    control: &ControlClient,
    mut rollout: Rollout,
    mut from: u64,
    mut view: ViewReceiver,
    (no_gpu, mut tell): (&mut Option<(String, NoGpu)>, impl FnMut(&str, NoGpu)),
) -> Result<u64, ApplyError> {
    loop {
        let current = Arc::clone(&view.borrow_and_update());
        let next = if current.applied_index < from { Next::Wait(None) } else { rollout.next(&current) };
        let operation_id = || fresh_operation_id().to_string();
        match next {
            Next::Load(spec) => {
                let request = pb::LoadModelRequest { spec: Some(spec.as_ref().into()), operation_id: operation_id() };
                let call = |mut client: Grpc<_>| {
                    let request = request.clone();
                    async move { client.load_model(request).await }
                };
                control.call(AGREE_WITHIN, call).await?;
            }
            Next::Unload(name) => {
                let request = pb::UnloadModelRequest { name, operation_id: operation_id() };
                let call = |mut client: Grpc<_>| {
                    let request = request.clone();
                    async move { client.unload_model(request).await }
                };
                control.call(AGREE_WITHIN, call).await?;
                // The watched view may be older than that; the returned index must not be, or its reader would still
                // see the model.
                from = control.get(true, AGREE_WITHIN).await?.applied_index;
            }
            Next::Wait(waits) => {
                if let Some((name, why)) = waits.as_ref().filter(|_| *no_gpu != waits) {
                    tell(name, *why);
                }
                *no_gpu = waits;
                let changed = view.changed().await;
                let ended = || ApplyError::Failed { reason: "the cluster's view ended".into(), as_of: 0 };
                changed.map_err(|_| ended())?;
            }
            Next::Done => return Ok(current.applied_index),
            Next::Failed(reason) => return Err(ApplyError::Failed { reason, as_of: current.applied_index }),
        }
    }
}
