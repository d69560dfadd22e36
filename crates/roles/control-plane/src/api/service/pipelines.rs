//! Calls about pipelines.

use std::sync::PoisonError;
use std::time::Instant;

use symphony_cluster_state::{Action, LoadedPipeline, PIPELINES_MAX, Reply};
use symphony_protocol::control as pb;
use symphony_types::{FrontendId, Level, Member};
use tonic::{Request, Response, Status};

use super::{ControlService, unexpected_reply};
use crate::api::convert;
use crate::planning::{LearntProfiles, MeasuredPipeline, Question};

/// Loads a pipeline; warns if its budget cannot be split yet, or leaves a stage too little.
pub(super) async fn load(
    service: &ControlService,
    request: &Request<pb::LoadPipelineRequest>,
) -> Result<Response<pb::LoadPipelineReply>, Status> {
    service.needs(Level::WITH_PIPELINES, "pipelines")?;
    let declaration = convert::load_pipeline(request.get_ref().spec.clone())?;
    let action = Action::LoadPipeline(declaration.clone());
    let reply = service.operate(request, &request.get_ref().operation_id, action).await?;
    let Reply::Pipeline { epoch } = reply else { return Err(unexpected_reply(&reply)) };
    // This replica may not have it yet, but has its models.
    let loaded = LoadedPipeline { declaration, epoch, split: None };
    let question = {
        let state = service.viewer.state.read();
        Question::of(&state, &loaded, &LearntProfiles::default(), MeasuredPipeline::default(), service.request_delays)
    };
    let warning = question.and_then(|question| match question.answer() {
        Ok(split) => question.too_short(&split),
        Err(why) => Some(format!("it is not ready before its budget can be split: {why}")),
    });
    Ok(Response::new(pb::LoadPipelineReply { epoch: epoch.get(), warning: warning.unwrap_or_default() }))
}

/// Unloads a version of a pipeline, or all of them.
pub(super) async fn unload(
    service: &ControlService,
    request: &Request<pb::UnloadPipelineRequest>,
) -> Result<Response<pb::UnloadPipelineReply>, Status> {
    service.needs(Level::WITH_PIPELINES, "pipelines")?;
    let action = Action::UnloadPipeline { name: request.get_ref().name.clone() };
    let reply = service.operate(request, &request.get_ref().operation_id, action).await?;
    let Reply::Unloaded { epoch } = reply else { return Err(unexpected_reply(&reply)) };
    Ok(Response::new(pb::UnloadPipelineReply { epoch: epoch.get() }))
}

/// Takes what a frontend has counted of pipelines.
pub(super) fn report(
    service: &ControlService,
    request: Request<pb::ReportPipelinesRequest>,
) -> Result<Response<pb::ReportPipelinesReply>, Status> {
    let from = FrontendId::new(request.get_ref().frontend);
    service.check_is_member(&request, Member::Frontend(from))?;
    if let Some(leader) = service.proposer.leader_elsewhere()? {
        // The frontend asks the next replica.
        return Err(Status::unavailable(format!("{leader} leads the control group")));
    }
    let counts = request.into_inner().pipelines;
    if counts.len() > PIPELINES_MAX {
        let got = counts.len();
        return Err(Status::invalid_argument(format!("{got} pipelines; expected at most {PIPELINES_MAX}")));
    }
    let state = service.viewer.state.read();
    let mut reported = service.reported.lock().unwrap_or_else(PoisonError::into_inner);
    reported.pipelines.take(Instant::now(), &state, from, counts.into_iter().map(Into::into));
    drop((reported, state));
    Ok(Response::new(pb::ReportPipelinesReply {}))
}
