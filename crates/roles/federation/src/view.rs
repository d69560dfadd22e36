//! The federation's state as messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use symphony_cluster_state::KeptOperation;
use symphony_federation_state::{FederatedPlan, FederationState, Model, Outcome, Progress};
use symphony_protocol::control as pb;
use symphony_protocol::view::View;

use crate::copies::{Copy, copy_in};

/// The answering replica, and the leader as far as it knows.
#[derive(Clone, Debug)]
pub(crate) struct Answering {
    pub(crate) federation: String,
    pub(crate) replica: u64,
    pub(crate) leader: u64,
}

/// What only the leader knows.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// The clients' demand.
    pub(crate) rates: BTreeMap<String, f64>,
    /// The newest views of the clusters that answer.
    pub(crate) views: BTreeMap<String, Arc<View>>,
}

/// The view for frontends' routing and for tools; with what was observed if this replica leads.
pub(crate) fn view(state: &FederationState, by: &Answering, observed: Option<&Observed>) -> pb::FederationView {
    let clusters = state.clusters().iter().map(|(name, cluster)| pb::FederatedCluster {
        name: name.clone(),
        control: cluster.control.clone(),
        reachable: cluster.reachable,
        since: cluster.since,
        kinds: cluster.kinds.iter().map(|(kind, has)| kind_view(kind, has.gpus, has.memory_bytes)).collect(),
    });
    let models = state.models().iter().map(|(name, model)| model_view(name, model, observed));
    let operations = observed.map(|_| state.operations().iter().map(operation).collect()).unwrap_or_default();
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
        plans: observed.map(|_| state.plans().iter().map(plan).collect()).unwrap_or_default(),
        log_entries: 0,
        replicas: Vec::new(),
        members: Vec::new(),
    }
}

fn kind_view(kind: &str, gpus: u32, memory_bytes: u64) -> pb::FederatedKind {
    pb::FederatedKind { gpu_kind: kind.to_owned(), gpus, memory_bytes }
}

/// Of the model's home and the cluster where it is going, those in which no GPU takes it.
fn no_gpu(model: &Model, observed: &Observed) -> Vec<pb::FederatedNoGpu> {
    let home = model.home.as_ref().map(|home| &home.cluster);
    let clusters = home.into_iter().chain(model.moving.as_ref().map(|moving| &moving.to));
    let without = clusters.filter_map(|cluster| match copy_in(observed.views.get(cluster)?, &model.spec) {
        Copy::NoGpu(why) => Some(pb::FederatedNoGpu { cluster: cluster.clone(), why: pb::NoGpu::from(why).into() }),
        _ => None,
    });
    without.collect()
}

fn model_view(name: &str, model: &Model, observed: Option<&Observed>) -> pb::FederatedModel {
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
        measured_rps: observed.and_then(|observed| observed.rates.get(name)).copied().unwrap_or(0.0),
        no_gpu: observed.map(|observed| no_gpu(model, observed)).unwrap_or_default(),
    }
}

fn plan(plan: &FederatedPlan) -> pb::FederatedPlan {
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

#[cfg(test)]
mod tests {
    use symphony_federation_state::Cause;

    use super::*;
    use crate::scene::Scene;

    #[test]
    fn a_model_that_no_gpu_takes_is_shown_with_the_cluster_and_the_reason_by_the_leader_only() {
        let mut scene = Scene::new(&["a", "b"]);
        scene.load("m", 0);
        scene.settle("m", "a");
        let shown = |scene: &Scene| {
            let observed = Observed { views: scene.views(), ..Observed::default() };
            let by = Answering { federation: "world".into(), replica: 1, leader: 1 };
            let of = |observed| view(&scene.state, &by, observed).models.remove(0).no_gpu;
            assert_eq!(of(None), [], "others look at no cluster");
            of(Some(&observed))
        };
        assert_eq!(shown(&scene), []);
        let down = |cluster: &str| pb::FederatedNoGpu { cluster: cluster.into(), why: pb::NoGpu::AllDown.into() };
        scene.backends_up("a", false);
        assert_eq!(shown(&scene), [down("a")]);
        scene.begin("m", "b", Cause::Operator);
        scene.backends_up("b", false);
        assert_eq!(shown(&scene), [down("a")], "b has no copy yet");
        scene.copy("m", "b", None);
        assert_eq!(shown(&scene), [down("a"), down("b")]);
        scene.backends_up("a", true);
        scene.lose("b");
        assert_eq!(shown(&scene), [], "what is not heard of is not said");
    }
}
