//! The cluster state as a view, the form in which all processes watch it.

use std::collections::BTreeMap;

use symphony_cluster_state::{self as state, Action, ClusterState, HolderState, OPERATIONS_KEPT};
use symphony_protocol::control as pb;
use symphony_protocol::epoch_plan_view::{
    BackendMoveView, EpochPlanView, ModelMoveView, MoveCostView, MoveProgressView, MovedView, PlanStatus,
    PlannedMoveView,
};
use symphony_protocol::view::{
    AdviceView, BackendView, DriftView, EventView, FleetAdviceView, FleetChoiceView, FrontendView, GpuView, HolderView,
    KindAdviceView, KindProfile, ModelSource, ModelSpec, ModelView, NodeView, OperationView, PipelineView, PolicyView,
    SlowGpuView, SubclusterView, SuccessorView, TrunkView, View,
};
use symphony_types::{GpuId, LatencyProfile, ModelId, Nanos, NodeId};

use crate::planning::{FleetAdvice, SubclusterAdvice};

/// Replica `replica`'s view of the state, with the last operations.
pub(crate) fn view(
    state: &ClusterState,
    cluster: &str,
    replica: NodeId,
    control_leader: Option<NodeId>,
    operations_max: usize,
) -> View {
    let operations = state.operations();
    let operations = operations[operations.len().saturating_sub(operations_max)..].iter().map(operation);
    let nodes = state.nodes().iter().map(|(&id, n)| {
        let view = NodeView {
            boot: Some(n.boot),
            up: n.up,
            control_addr: n.control_addr.clone(),
            dispatch_addr: n.dispatch_addr.clone(),
            beat_addr: n.beat_addr.clone(),
            duty: n.duty(),
        };
        (id, view)
    });
    let subclusters = state.subclusters().iter().map(|(&id, s)| {
        let leader = s.leader.map(|l| (l.node, l.boot));
        let successor = s.successor.map(|next| SuccessorView { node: next.node, boot: next.boot, since: next.since });
        let (name, standbys) = (s.name.clone(), s.standbys.clone());
        let policy = state.policies().get(&id).map(|policy| PolicyView {
            text: policy.text.clone(),
            failed: policy.failed.map(|failed| failed.to_string()),
        });
        (id, SubclusterView { name, leader, token: s.token, standbys, successor, policy, advice: None, load: None })
    });
    let frontends = state.frontends().iter().map(|(&id, f)| (id, frontend(f)));
    let models = state.models().iter().map(|(&id, m)| (id, model(m, state.trunks().get(&id))));
    View {
        cluster: cluster.to_owned(),
        applied_index: state.applied_index(),
        epoch: state.epoch(),
        level: state.level(),
        replica,
        control_leader,
        nodes: nodes.collect(),
        subclusters: subclusters.collect(),
        backends: state.backends().iter().map(|(&id, b)| (id, backend(b))).collect(),
        frontends: frontends.collect(),
        models: models.collect(),
        traffic: state.traffic().clone(),
        pipelines: state.pipelines().iter().map(|(loaded_as, known)| (loaded_as.clone(), pipeline(known))).collect(),
        events: state.events().iter().map(event).collect(),
        operations: operations.collect(),
        group: BTreeMap::new(),
        removed_nodes: state.removed_nodes().clone(),
        plans: Vec::new(),
    }
}

fn pipeline(known: &state::LoadedPipeline) -> PipelineView {
    let state::LoadedPipeline { declaration, epoch, split } = known.clone();
    PipelineView { declaration, epoch, split, load: None }
}

fn event(event: &state::Event) -> EventView {
    EventView { index: event.index, at_unix_ms: event.at_unix_ms, what: event.what.clone() }
}

fn operation(kept: &state::KeptOperation<state::Outcome>) -> OperationView {
    OperationView {
        index: kept.index,
        id: kept.id,
        actor: kept.actor.clone(),
        at_unix_ms: kept.at_unix_ms,
        what: kept.what.clone(),
        refusal: kept.outcome.as_ref().err().map(ToString::to_string),
    }
}

fn frontend(frontend: &state::Frontend) -> FrontendView {
    FrontendView {
        name: frontend.name.clone(),
        boot: frontend.boot,
        data_addr: frontend.data_addr.clone(),
        console_addr: frontend.console_addr.clone(),
        duty: frontend.standing.duty(),
        drained: frontend.standing.drained,
        leaving: frontend.standing.leaving,
        silent: None,
        level: None,
    }
}

fn backend(backend: &state::Backend) -> BackendView {
    let gpus = backend.gpus.iter().map(|g| GpuView {
        id: g.id,
        kind: g.kind.clone(),
        memory_bytes: g.memory_bytes,
        binding: g.binding,
    });
    BackendView {
        name: backend.name.clone(),
        boot: backend.boot,
        up: backend.up(),
        exec_addr: backend.exec_addr.clone(),
        subcluster: backend.subcluster,
        executor: backend.executor.clone(),
        gpus: gpus.collect(),
        duty: backend.duty(),
        drained: backend.standing.drained,
        moving: backend.moving.map(|moving| BackendMoveView {
            to: moving.to,
            since: moving.since,
            preloads: moving.preloads,
            retiring: moving.retiring,
        }),
        level: None,
    }
}

fn model(model: &state::Model, trunk: Option<&state::Trunk>) -> ModelView {
    let holders = model.holders.iter().map(|(&backend, holder)| {
        let state = match &holder.state {
            HolderState::Ready => Ok(()),
            HolderState::Failed(error) => Err(error.clone()),
        };
        (backend, HolderView { boot: holder.boot, state })
    });
    let moving = model.moving.map(|moving| ModelMoveView {
        from: moving.from,
        to: moving.to,
        since: moving.since,
        switched: moving.switched,
    });
    ModelView {
        spec: spec(&model.spec),
        subcluster: model.subcluster,
        moving,
        holders: holders.collect(),
        trunk: trunk.map(|trunk| TrunkView { cuts: trunk.cuts.clone(), shared: trunk.shared }),
    }
}

/// Advice for operators.
pub(crate) fn advice(advised: &SubclusterAdvice) -> AdviceView {
    let prices = advised.fleet.iter().flat_map(|fleet| &fleet.prices).copied().chain(std::iter::repeat(None));
    let kinds = advised.kinds.iter().zip(&advised.advice.kinds).zip(prices);
    let kinds = kinds.map(|((kind, advice), price_per_hour)| KindAdviceView {
        kind: kind.clone(),
        target: advice.target,
        release: advice.release.clone(),
        price_per_hour,
    });
    AdviceView {
        reason: advised.advice.reason.label().to_owned(),
        bad_rate: advised.advice.bad_rate,
        idle_fraction: advised.advice.idle_fraction,
        busy_gpus: advised.gpu_use.busy,
        demand_gpus: advised.gpu_use.demand,
        kinds: kinds.collect(),
        slow: advised.slow.iter().map(slow).collect(),
        drifts: advised.drifts.iter().map(drift).collect(),
        fleet: advised.fleet.as_ref().map(fleet),
    }
}

fn fleet(advised: &FleetAdvice) -> FleetAdviceView {
    FleetAdviceView {
        budget_per_hour: advised.budget_per_hour,
        chosen: advised.plan.as_ref().map(|plan| FleetChoiceView {
            price_per_hour: plan.price_per_hour,
            bound_rps: plan.bound_rps,
            needed_rps: plan.needed_rps,
            rate_rps: plan.rate_rps,
        }),
        refused: advised.refused.clone().unwrap_or_default(),
    }
}

/// A quarantined GPU.
pub(crate) fn slow(gpu: &pb::GpuLoad) -> SlowGpuView {
    let quarantined_ms = (!gpu.lost).then_some(gpu.quarantined_ms);
    SlowGpuView { gpu: GpuId::new(gpu.gpu), slowdown: gpu.slowdown, failed: gpu.failed, quarantined_ms }
}

fn drift(drift: &pb::Drift) -> DriftView {
    DriftView { model: ModelId::new(drift.model), kind: drift.gpu_kind.clone(), factor: drift.factor }
}

const fn move_cost(cost: state::MoveCost) -> MoveCostView {
    let state::MoveCost { bytes, backend_bytes, backend_ms, gpu_bytes } = cost;
    MoveCostView { bytes, backend_bytes, backend_ms, gpu_bytes }
}

/// What ended a plan before it ran; empty if the plan was not dropped, or if the operation is no longer remembered.
fn dropped(state: &ClusterState, plan: &state::EpochPlan) -> String {
    if plan.status != state::PlanStatus::Dropped {
        return String::new();
    }
    let (refusal, operations) = (Action::ReviewPlan { plan: plan.id, approve: false }.to_string(), state.operations());
    if let Some(refused) = operations.iter().rev().find(|kept| kept.what == refusal && kept.outcome.is_ok()) {
        return format!("refused by {}", refused.actor);
    }
    // A newer plan ends every waiting plan, so the next one did; unless the refusal is forgotten.
    let remembered = operations.len() < OPERATIONS_KEPT || operations.first().is_some_and(|kept| kept.index <= plan.id);
    let next = state.plans().iter().find(|other| other.id > plan.id).filter(|_| remembered);
    next.map(|next| format!("plan {} took its place", next.id)).unwrap_or_default()
}

/// A partition plan for operators.
pub(crate) fn plan(state: &ClusterState, plan: &state::EpochPlan) -> EpochPlanView {
    let status = match plan.status {
        state::PlanStatus::Proposed => PlanStatus::Proposed,
        state::PlanStatus::Running => PlanStatus::Running,
        state::PlanStatus::Done => PlanStatus::Done,
        state::PlanStatus::Dropped => PlanStatus::Dropped,
    };
    let moves = plan.moves.iter().map(|planned| {
        let what = match planned.wanted.what {
            state::Moved::Model(id) => MovedView::Model(id),
            state::Moved::Backend(id) => MovedView::Backend(id),
        };
        let progress = match &planned.progress {
            state::MoveProgress::Waiting => MoveProgressView::Waiting,
            state::MoveProgress::UnderWay(index) => MoveProgressView::UnderWay(*index),
            state::MoveProgress::Done(index) => MoveProgressView::Done(*index),
            state::MoveProgress::GivenUp(reason) => MoveProgressView::GivenUp(reason.clone()),
        };
        let (from, to, cost) = (planned.wanted.from, planned.wanted.to, move_cost(planned.cost));
        PlannedMoveView { what, from, to, cost, progress }
    });
    let (cause, summary) = (plan.cause.clone(), plan.summary.clone());
    EpochPlanView {
        id: plan.id,
        status,
        cause,
        summary,
        moves: moves.collect(),
        cost: move_cost(plan.cost),
        left_alone: plan.left_alone.iter().map(|left| (left.model, left.reason.clone())).collect(),
        dropped: dropped(state, plan),
    }
}

fn spec(spec: &state::ModelSpec) -> ModelSpec {
    let profiles = spec.profiles.iter().filter_map(|(kind, profile)| {
        let table: Vec<_> = profile.latency_ns.iter().map(|&ns| Nanos::new(ns)).collect();
        // The state holds only valid profiles. Should it hold another, losing one model's profile is better than
        // losing the control plane.
        let latency = LatencyProfile::from_table(&table)
            .inspect_err(|error| tracing::error!(model = spec.name, kind, %error, "the state holds a bad profile"))
            .ok()?;
        let profile = KindProfile {
            latency,
            static_memory_bytes: profile.static_memory_bytes,
            dynamic_memory_bytes: profile.dynamic_memory_bytes,
        };
        Some((kind.clone(), profile))
    });
    let source = match &spec.source {
        state::ModelSource::Onnx(path) => ModelSource::Onnx(path.clone()),
        state::ModelSource::OnnxUnshared(path) => ModelSource::OnnxUnshared(path.clone()),
        state::ModelSource::Emulated => ModelSource::Emulated,
    };
    ModelSpec {
        name: spec.name.clone(),
        subcluster: spec.subcluster.clone(),
        slo: spec.slo(),
        source,
        signature: spec.signature.clone(),
        transforms: (*spec.transforms).clone(),
        profiles: profiles.collect(),
        policy: spec.policy,
        value: spec.value,
    }
}
