//! The calls about pipelines.

use std::sync::Arc;
use std::time::Duration;

use symphony_pipeline::PipelineDeclaration;
use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient as Grpc;
use symphony_transport::{AGREE_WITHIN, ControlClient, ControlError, fresh_operation_id};
use symphony_types::OperationId;

use crate::apply::{ApplyError, apply};
use crate::rollout::Rollout;

/// Makes the cluster serve this version of a pipeline, and no other; returns when it can be asked and the others are
/// gone, with the log index from which on it is so, for callers that watch the cluster themselves.
///
/// # Errors
/// If the cluster refuses, no split meets the budget, or it cannot be asked within this time. Other versions stay then.
pub async fn apply_pipeline(
    control: &ControlClient,
    declaration: &PipelineDeclaration,
    within: Duration,
) -> Result<u64, ApplyError> {
    let pb::LoadPipelineReply { warning, .. } = load_pipeline(control, declaration, fresh_operation_id()).await?;
    if !warning.is_empty() {
        let view = control.get(true, AGREE_WITHIN).await?;
        let known = view.pipelines.get(&declaration.versioned().loaded_as());
        // It would be waited for in vain, unless it has budgets already: they follow from what was measured.
        if known.is_none_or(|known| known.unready(&view).is_some()) {
            let reason = format!("pipeline `{}`: {warning}", declaration.name);
            return Err(ApplyError::Failed { reason, as_of: view.applied_index });
        }
    }
    apply(control, Rollout::to_pipeline(declaration), within, |_| {}).await
}

/// Makes the cluster stop serving what has this name, all versions of a model or pipeline, or the one that `name`
/// spells out as `NAME@VERSION`; returns the log index from which on it does not.
///
/// # Errors
/// As [`apply()`].
pub async fn unload(control: &ControlClient, name: &str, within: Duration) -> Result<u64, ApplyError> {
    let view = control.get(true, AGREE_WITHIN).await?;
    if view.pipeline_versions(name).is_empty() {
        return apply(control, Rollout::away(name), within, |_| {}).await;
    }
    unload_pipeline(control, name, fresh_operation_id()).await?;
    Ok(control.get(true, AGREE_WITHIN).await?.applied_index)
}

/// Makes the cluster agree to a version of a pipeline beside others. The reply has the epoch as of which it is loaded,
/// and what the operator should know.
///
/// # Errors
/// If it does not answer, or refuses.
pub async fn load_pipeline(
    control: &ControlClient,
    declaration: &PipelineDeclaration,
    operation: OperationId,
) -> Result<pb::LoadPipelineReply, ControlError> {
    let request = pb::LoadPipelineRequest { spec: Some(declaration.into()), operation_id: operation.to_string() };
    let call = |mut client: Grpc<_>| {
        let request = request.clone();
        async move { client.load_pipeline(request).await }
    };
    control.call(AGREE_WITHIN, call).await
}

/// Makes the cluster agree to remove all versions of a pipeline, or the one that `name` spells out as `NAME@VERSION`.
///
/// # Errors
/// If it does not answer, or refuses.
pub async fn unload_pipeline(control: &ControlClient, name: &str, operation: OperationId) -> Result<(), ControlError> {
    let request = pb::UnloadPipelineRequest { name: name.to_owned(), operation_id: operation.to_string() };
    let call = |mut client: Grpc<_>| {
        let request = request.clone();
        async move { client.unload_pipeline(request).await }
    };
    control.call(AGREE_WITHIN, call).await.map(drop)
}

/// Waits until this version of a pipeline, loaded in this epoch, has budgets, and all its stages can be asked; returns
/// the log index as of which it is so.
///
/// # Errors
/// If it is not so within this time.
pub async fn pipeline_ready(
    control: &ControlClient,
    declaration: &PipelineDeclaration,
    epoch: u64,
    within: Duration,
) -> Result<u64, ApplyError> {
    let (name, loaded_as) = (&declaration.name, declaration.versioned().loaded_as());
    let mut view = control.watch(&format!("pipeline load {name}"));
    let mut why = "no replica has shown it".to_owned();
    let ready = async {
        loop {
            let current = Arc::clone(&view.borrow_and_update());
            // A replica that lags may show one that was unloaded before.
            let known = current.pipelines.get(&loaded_as).filter(|known| known.epoch.get() >= epoch);
            if let Some(known) = known {
                match known.unready(&current) {
                    None => return Some(current.applied_index),
                    Some(reason) => why = reason,
                }
            }
            if view.changed().await.is_err() {
                return None;
            }
        }
    };
    let ended = tokio::time::timeout(within, ready).await;
    match ended {
        Ok(Some(as_of)) => Ok(as_of),
        Ok(None) => Err(ApplyError::Failed { reason: "the cluster's view ended".into(), as_of: 0 }),
        Err(_) => Err(ApplyError::Unready { pipeline: name.clone(), within, why }),
    }
}
