//! The calls about pipelines.

use std::time::Duration;

use symphony_pipeline::PipelineDeclaration;
use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient as Grpc;
use symphony_transport::{AGREE_WITHIN, ControlClient, ControlError, fresh_operation_id};
use symphony_types::OperationId;

use crate::apply::{ApplyError, apply};
use crate::rollout::Rollout;

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
