//! Calls about models.

use symphony_cluster_state::{Action, ModelSource, ModelSpec, Reply};
use symphony_protocol::control as pb;
use symphony_types::{BackendId, Level, Member};
use tonic::{Request, Response, Status};

use super::{ControlService, unexpected_reply};
use crate::api::convert;

/// Loads a model; warns of an SLO that is too short for it.
pub(super) async fn load(
    service: &ControlService,
    request: &Request<pb::LoadModelRequest>,
) -> Result<Response<pb::LoadModelReply>, Status> {
    let spec = convert::load_model(request.get_ref().spec.clone())?;
    if matches!(spec.source, ModelSource::OnnxUnshared(_)) {
        service.needs(Level::WITH_FAMILIES, "models with an own trunk")?;
    }
    let warning = convert::too_short_slo(&spec, service.request_delays).unwrap_or_default();
    let action = Action::LoadModel(spec);
    let reply = service.operate(request, &request.get_ref().operation_id, action).await?;
    let Reply::Model { model, epoch } = reply else { return Err(unexpected_reply(&reply)) };
    Ok(Response::new(pb::LoadModelReply { model: model.get(), epoch: epoch.get(), warning }))
}

/// Unloads a model.
pub(super) async fn unload(
    service: &ControlService,
    request: &Request<pb::UnloadModelRequest>,
) -> Result<Response<pb::UnloadModelReply>, Status> {
    let action = Action::UnloadModel { name: request.get_ref().name.clone() };
    let reply = service.operate(request, &request.get_ref().operation_id, action).await?;
    let Reply::Unloaded { epoch } = reply else { return Err(unexpected_reply(&reply)) };
    Ok(Response::new(pb::UnloadModelReply { epoch: epoch.get() }))
}

/// Changes a model; warns of an SLO that is too short for it.
pub(super) async fn change(
    service: &ControlService,
    request: &Request<pb::ChangeModelRequest>,
) -> Result<Response<pb::ChangeModelReply>, Status> {
    let action = convert::change_model(request.get_ref())?;
    service.operate(request, &request.get_ref().operation_id, action).await?;
    let message = request.get_ref();
    let known = service.viewer.whole().model_named(&message.name).map(|(_, model)| ModelSpec::from(model.spec.clone()));
    let warning = known
        .zip(message.slo_ns)
        .and_then(|(spec, slo_ns)| convert::too_short_slo(&ModelSpec { slo_ns, ..spec }, service.request_delays));
    Ok(Response::new(pb::ChangeModelReply { warning: warning.unwrap_or_default() }))
}

/// Divides the requests of a model among its versions.
pub(super) async fn set_traffic(
    service: &ControlService,
    request: &Request<pb::SetTrafficRequest>,
) -> Result<Response<pb::SetTrafficReply>, Status> {
    let traffic = request.get_ref().traffic.clone().unwrap_or_default();
    let action = Action::SetTraffic { model: traffic.model.clone(), traffic: traffic.into() };
    service.operate(request, &request.get_ref().operation_id, action).await?;
    Ok(Response::new(pb::SetTrafficReply {}))
}

/// Takes what a backend reports of a model that it loads.
pub(super) async fn report(
    service: &ControlService,
    request: Request<pb::ReportModelRequest>,
) -> Result<Response<pb::ReportModelReply>, Status> {
    let backend = request.get_ref().replica.as_ref().map(|replica| BackendId::new(replica.backend));
    if let Some(backend) = backend {
        service.check_is_member(&request, Member::Backend(backend))?;
    }
    service.propose(convert::report_model(request.into_inner())?).await?;
    Ok(Response::new(pb::ReportModelReply {}))
}

/// Takes the cut points that a backend has found in a model.
pub(super) async fn report_cuts(
    service: &ControlService,
    request: &Request<pb::ReportCutsRequest>,
) -> Result<Response<pb::ReportCutsReply>, Status> {
    service.check_is_member(request, Member::Backend(BackendId::new(request.get_ref().backend)))?;
    service.needs(Level::WITH_FAMILIES, "trunks of models")?;
    service.propose(convert::report_cuts(request.get_ref())?).await?;
    Ok(Response::new(pb::ReportCutsReply {}))
}
