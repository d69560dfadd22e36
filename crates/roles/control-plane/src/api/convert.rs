//! Translates requests of the control port into commands.

use std::collections::BTreeMap;

use symphony_cluster_state::{
    Action, BackendRegistration, Command, ERROR_BYTES_MAX, FrontendRegistration, GpuOffer, HolderState, ModelSpec,
    Moved, NewReplica, PlanProposal, WantedMove,
};
use symphony_pipeline::PipelineDeclaration;
use symphony_policy::{ModelPolicy, PolicySpec};
use symphony_protocol::control as pb;
use symphony_protocol::view::cuts_from_pb;
use symphony_quotas::{Demand, TenantDemand};
use symphony_scheduler::{ClusterFacts, PolicyRegistry, RegistryError};
use symphony_types::{
    BackendId, BootId, Epoch, Member, ModelId, Nanos, NodeId, RequestValue, SubclusterId, TENANTS_MAX, is_name,
};
use tonic::Status;

pub(crate) fn register_backend(request: pb::RegisterBackendRequest) -> Command {
    let gpus = request.gpus.into_iter().map(|g| GpuOffer { kind: g.kind, memory_bytes: g.memory_bytes });
    Command::RegisterBackend(BackendRegistration {
        name: request.name,
        boot: BootId::new(request.boot_id),
        exec_addr: request.exec_addr,
        subcluster: request.subcluster,
        executor: request.executor,
        gpus: gpus.collect(),
        avoid: None,
    })
}

/// A frontend's report on tenants. Numbers that make no sense are the book's to judge.
pub(crate) fn demands(tenants: Vec<pb::TenantDemand>) -> Result<BTreeMap<String, TenantDemand>, Status> {
    if tenants.len() > TENANTS_MAX {
        return Err(Status::invalid_argument(format!("{} tenants; expected at most {TENANTS_MAX}", tenants.len())));
    }
    let quota = |demand: pb::QuotaDemand| Demand { quota: demand.quota, offered: demand.offered, held: demand.held };
    let read = |tenant: pb::TenantDemand| {
        if !is_name(&tenant.name) {
            return Err(Status::invalid_argument("the name of a tenant is none"));
        }
        let demand = TenantDemand { items: tenant.items.map(quota), gpu_seconds: tenant.gpu_seconds.map(quota) };
        Ok((tenant.name, demand))
    };
    tenants.into_iter().map(read).collect()
}

pub(crate) fn backend_down(request: pb::ReportBackendDownRequest) -> Command {
    Command::BackendDown { backend: BackendId::new(request.backend), boot: BootId::new(request.boot_id) }
}

pub(crate) fn register_frontend(request: pb::RegisterFrontendRequest) -> Command {
    Command::RegisterFrontend(FrontendRegistration {
        name: request.name,
        boot: BootId::new(request.boot_id),
        data_addr: request.data_addr,
        console_addr: request.console_addr,
    })
}

pub(crate) fn member(member: Option<pb::Member>) -> Result<Member, Status> {
    let missing = || Status::invalid_argument("member: missing; expected a scheduler, a backend or a frontend");
    Member::try_from(member.ok_or_else(missing)?).map_err(|error| Status::invalid_argument(error.to_string()))
}

pub(crate) fn set_duty(request: &pb::SetDutyRequest) -> Result<Action, Status> {
    let duty = pb::Duty::try_from(request.duty).map_err(|_| {
        Status::invalid_argument(format!("duty: {}; expected serving, cordoned or draining", request.duty))
    })?;
    Ok(Action::SetDuty { member: member(request.member)?, duty: duty.into() })
}

pub(crate) fn change_model(request: &pb::ChangeModelRequest) -> Result<Action, Status> {
    let policy = request
        .policy
        .as_deref()
        .map(|text| text.parse::<ModelPolicy>().map_err(|error| Status::invalid_argument(format!("policy: {error}"))));
    let value = request.value_thousandths.map(|got| {
        let (min, max) = (RequestValue::MIN.thousandths(), RequestValue::MAX.thousandths());
        let expected = || Status::invalid_argument(format!("value_thousandths: {got}; expected {min} to {max}"));
        RequestValue::from_thousandths(got).ok_or_else(expected)
    });
    let (name, slo_ns) = (request.name.clone(), request.slo_ns);
    Ok(Action::ChangeModel { name, slo_ns, policy: policy.transpose()?, value: value.transpose()? })
}

/// Checks the options of a policy that this program adds, which only its constructor knows. A name that is not known
/// here is the state's to judge, which knows those of all replicas.
pub(crate) fn check_policy(policies: &PolicyRegistry, text: &str) -> Result<(), Status> {
    let added: Vec<_> = policies.names().collect();
    let Ok(spec) = PolicySpec::parse_among(text, &added) else { return Ok(()) };
    match policies.build(&spec, &ClusterFacts::default()) {
        Err(error @ RegistryError::Options { .. }) => Err(Status::invalid_argument(error.to_string())),
        _ => Ok(()),
    }
}

pub(crate) fn load_model(spec: Option<pb::ModelSpec>) -> Result<ModelSpec, Status> {
    let spec = spec.ok_or_else(|| Status::invalid_argument("spec: missing; expected a model"))?;
    ModelSpec::try_from(spec).map_err(|error| Status::invalid_argument(format!("spec: {error}")))
}

pub(crate) fn load_pipeline(spec: Option<pb::PipelineSpec>) -> Result<PipelineDeclaration, Status> {
    let spec = spec.ok_or_else(|| Status::invalid_argument("spec: missing; expected a pipeline"))?;
    PipelineDeclaration::try_from(spec).map_err(|error| Status::invalid_argument(format!("spec: {error}")))
}

/// An explanation if a request with the model's SLO as deadline can never be answered in time: even one item alone on
/// an idle GPU takes longer, with the delays of every request. None if it can.
pub(crate) fn too_short_slo(spec: &ModelSpec, delays: Nanos) -> Option<String> {
    let alone = spec.profiles.values().filter_map(|profile| profile.latency_ns.first()).min()?;
    let (slo, alone) = (spec.slo(), Nanos::new(*alone));
    let least = alone + delays;
    (slo < least).then(|| {
        let [slo, alone, delays, least] = [slo, alone, delays, least].map(Nanos::as_millis_f64);
        format!(
            "its SLO of {slo} ms cannot be met: one item alone takes {alone} ms, and scheduler.delays add {delays} ms. Its requests \
             will be dropped as slo_unreachable; load it with {least} ms or more"
        )
    })
}

pub(crate) fn report_model(request: pb::ReportModelRequest) -> Result<Command, Status> {
    let missing = || Status::invalid_argument("replica: missing; expected backend, boot_id and state");
    let replica = request.replica.ok_or_else(missing)?;
    let state = match replica.state() {
        pb::ModelState::Ready => HolderState::Ready,
        pb::ModelState::Failed => HolderState::Failed(cut(replica.error)),
        pb::ModelState::Unspecified => {
            return Err(Status::invalid_argument("replica.state: unspecified; expected ready or failed"));
        }
    };
    Ok(Command::ReportModel {
        model: ModelId::new(request.model),
        backend: BackendId::new(replica.backend),
        boot: BootId::new(replica.boot_id),
        state,
        load_ns: request.load_ns,
    })
}

pub(crate) fn report_cuts(request: &pb::ReportCutsRequest) -> Result<Command, Status> {
    let cuts = cuts_from_pb(&request.cuts, "cuts").map_err(|error| Status::invalid_argument(error.to_string()))?;
    let (model, backend, boot) =
        (ModelId::new(request.model), BackendId::new(request.backend), BootId::new(request.boot_id));
    Ok(Command::ReportCuts { model, backend, boot, cuts })
}

pub(crate) fn change(request: &pb::ChangeReplicasRequest) -> Action {
    let some = |id: u64| (id != 0).then(|| NodeId::new(id));
    let add = some(request.add).map(|node| NewReplica { node, control_addr: request.add_control_addr.clone() });
    Action::ChangeReplicas { add, remove: some(request.remove) }
}

pub(crate) fn propose_plan(request: &pb::ProposePlanRequest, load_bytes_per_s: u64) -> Result<Action, Status> {
    let moves = request.moves.iter().map(|wanted| {
        let missing = || Status::invalid_argument("moves.what: missing; expected a model or a backend");
        let what = match wanted.what.ok_or_else(missing)? {
            pb::wanted_move::What::Model(id) => Moved::Model(ModelId::new(id)),
            pb::wanted_move::What::Backend(id) => Moved::Backend(BackendId::new(id)),
        };
        Ok(WantedMove { what, from: SubclusterId::new(wanted.from), to: SubclusterId::new(wanted.to) })
    });
    Ok(Action::ProposePlan(PlanProposal {
        epoch: Epoch::new(request.epoch),
        cause: request.cause.clone(),
        summary: request.summary.clone(),
        moves: moves.collect::<Result<_, Status>>()?,
        left_alone: Vec::new(),
        load_bytes_per_s,
        adopt: request.adopt,
    }))
}

/// The beginning of a long error is better than a refused report.
fn cut(mut error: String) -> String {
    error.truncate(error.floor_char_boundary(ERROR_BYTES_MAX));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_are_of_so_many_tenants_with_names() {
        let tenant = |name: &str| pb::TenantDemand {
            name: name.into(),
            items: Some(pb::QuotaDemand { quota: 9.0, offered: 7.0, held: 3.0 }),
            gpu_seconds: None,
        };
        let read = demands(vec![tenant("a")]).unwrap();
        assert_eq!(read["a"].items, Some(Demand { quota: 9.0, offered: 7.0, held: 3.0 }));
        assert!(demands(vec![tenant("A b")]).is_err());
        assert!(demands(vec![tenant("a"); TENANTS_MAX + 1]).unwrap_err().message().contains("expected at most 1024"));
    }

    #[test]
    fn a_long_error_is_cut_between_characters() {
        assert_eq!(cut("short".into()), "short");
        let long = cut(format!("x{}", "é".repeat(200)));
        assert_eq!(long.len(), 255, "an é takes two bytes, and half of one is none");
    }

    #[test]
    fn an_slo_that_leaves_no_time_for_the_delays_is_warned_of() {
        let spec = |slo_ms| ModelSpec {
            name: "m".into(),
            subcluster: "s".into(),
            slo_ns: Nanos::from_millis(slo_ms).get(),
            source: symphony_cluster_state::ModelSource::Emulated,
            signature: symphony_types::Signature { inputs: vec![], outputs: vec![] },
            transforms: Box::default(),
            profiles: [(
                "a100".into(),
                symphony_cluster_state::KindProfile {
                    latency_ns: vec![6_000_000, 7_000_000],
                    static_memory_bytes: 0,
                    dynamic_memory_bytes: 0,
                },
            )]
            .into(),
            policy: Default::default(),
            value: symphony_types::RequestValue::ONE,
        };
        let delays = Nanos::from_millis(13);
        assert_eq!(too_short_slo(&spec(19), delays), None);
        let warning = too_short_slo(&spec(18), delays).unwrap();
        assert!(
            warning.contains("takes 6 ms") && warning.contains("add 13 ms") && warning.contains("19 ms or more"),
            "{warning}"
        );
    }

    #[test]
    fn what_has_no_meaning_is_named() {
        let error = load_model(None).unwrap_err();
        assert!(error.message().starts_with("spec: missing"), "{error}");
        let error = report_model(pb::ReportModelRequest { model: 1, ..Default::default() }).unwrap_err();
        assert!(error.message().starts_with("replica: missing"), "{error}");
        let replica = Some(pb::ModelReplica::default());
        let error = report_model(pb::ReportModelRequest { model: 1, replica, load_ns: 0 }).unwrap_err();
        assert!(error.message().starts_with("replica.state"), "{error}");
        let error = set_duty(&pb::SetDutyRequest { duty: 1, ..Default::default() }).unwrap_err();
        assert!(error.message().starts_with("member: missing"), "{error}");
        let error = set_duty(&pb::SetDutyRequest { duty: 9, ..Default::default() }).unwrap_err();
        assert!(error.message().starts_with("duty: 9"), "{error}");
    }
}
