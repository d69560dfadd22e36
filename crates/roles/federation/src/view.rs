//! The federation's state as messages.

use std::collections::BTreeMap;

use symphony_cluster_state::KeptOperation;
use symphony_federation_state::{FederationState, Model, Outcome, Plan, Progress};
use symphony_protocol::control as pb;

/// The answering replica, and the leader as far as it knows.
#[derive(Clone, Debug)]
pub(crate) struct Answering {
    pub(crate) federation: String,
    pub(crate) replica: u64,
    pub(crate) leader: u64,
}

/// The view for frontends' routing and for tools; with the clients' demand if this replica knows it.
pub(crate) fn view(
    state: &FederationState,
    by: &Answering,
    rates: Option<&BTreeMap<String, f64>>,
) -> pb::FederationView {
    let clusters = state.clusters().iter().map(|(name, cluster)| pb::FederatedCluster {
        name: name.clone(),
        control: cluster.control.clone(),
        reachable: cluster.reachable,
        since: cluster.since,
        kinds: cluster.kinds.iter().map(|(kind, has)| kind_view(kind, has.gpus, has.memory_bytes)).collect(),
    });
    let models = state.models().iter().map(|(name, model)| model_view(name, model, rates));
    let operations = rates.map(|_| state.operations().iter().map(operation).collect()).unwrap_or_default();
    pb::FederationView {
        federation: by.federation.clone(),
        applied_index: state.applied_index(),
        plan: state.plan(),
        replica: by.replica,
        leader: by.leader,
        clusters: clusters.collect(),
        models: models.collect(),
        events: state
            .events()
            .iter()
            .map(|e| pb::Event { index: e.index, at_unix_ms: e.at_unix_ms, what: e.what.clone() })
            .collect(),
        operations,
        plans: rates.map(|_| state.plans().iter().map(plan).collect()).unwrap_or_default(),
        log_entries: 0,
        replicas: Vec::new(),
    }
}

fn kind_view(kind: &str, gpus: u32, memory_bytes: u64) -> pb::FederatedKind {
    pb::FederatedKind { gpu_kind: kind.to_owned(), gpus, memory_bytes }
}

fn model_view(name: &str, model: &Model, rates: Option<&BTreeMap<String, f64>>) -> pb::FederatedModel {
    pb::FederatedModel {
        name: name.to_owned(),
        home: model.home.as_ref().map(|home| home.cluster.clone()).unwrap_or_default(),
        moves_to: model.moving.as_ref().map(|moving| moving.to.clone()).unwrap_or_default(),
        cause: model.moving.as_ref().map(|moving| moving.cause.label().to_owned()).unwrap_or_default(),
        leftovers: model.leftovers.keys().cloned().collect(),
        unloading: model.unloading,
        unplaced: model.unplaced.clone(),
        slo_ns: model.spec.slo_ns,
        value_thousandths: model.spec.value.thousandths(),
        wanted_rps: model.wanted_mrps as f64 / 1000.0,
        measured_rps: rates.and_then(|rates| rates.get(name)).copied().unwrap_or(0.0),
    }
}

fn plan(plan: &Plan) -> pb::FederatedPlan {
    let moves = plan.moves.iter().map(|planned| {
        let (progress, index, reason) = match &planned.progress {
            Progress::UnderWay => (pb::MoveProgress::UnderWay, plan.id, String::new()),
            Progress::Done(index) => (pb::MoveProgress::Done, *index, String::new()),
            Progress::GivenUp(reason) => (pb::MoveProgress::GivenUp, 0, reason.clone()),
        };
        pb::FederatedPlannedMove {
            model: planned.model.clone(),
            from: planned.from.clone().unwrap_or_default(),
            to: planned.to.clone(),
            progress: progress.into(),
            index,
            reason,
        }
    });
    pb::FederatedPlan { id: plan.id, cause: plan.cause.label().to_owned(), moves: moves.collect() }
}

fn operation(kept: &KeptOperation<Outcome>) -> pb::Operation {
    pb::Operation {
        index: kept.index,
        id: kept.id.to_string(),
        actor: kept.actor.clone(),
        at_unix_ms: kept.at_unix_ms,
        what: kept.what.clone(),
        refusal: kept.outcome.as_ref().err().map(ToString::to_string).unwrap_or_default(),
    }
}
