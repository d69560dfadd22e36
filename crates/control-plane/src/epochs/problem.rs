//! The cluster as a problem for the partitioner, and its plan as moves.

use std::collections::{BTreeMap, BTreeSet};

use symphony_cluster_state::{Backend, ClusterState, Moved, PLAN_MOVES_MAX, WantedMove};
use symphony_partitioner::{
    Change, Gpu, GpuKind, KindNeed, Model, Part, PartGpus, PartKind, PartPlan, Plan, Problem, Steadiness,
};
use symphony_types::{LatencyProfile, ModelId, Nanos, SubclusterId};

use super::settings::EpochSettings;

/// What stands for memory without a limit to tell.
const NO_LIMIT_BYTES: u64 = 1 << 40;
/// What moving a model costs beside its bytes, which are the unit: seconds of attention that even a small one takes.
const MOVE_BYTES_LEAST: u64 = 1 << 20;

/// The cluster as a problem, and the plan that is in force.
#[derive(Debug)]
pub(crate) struct Posed {
    pub(crate) problem: Problem,
    pub(crate) in_force: Plan,
    parts: BTreeMap<String, SubclusterId>,
    models: BTreeMap<String, ModelId>,
}

/// Poses the problem: sub-clusters with a backend that takes work are the parts, sized by their GPUs, and their models are to be
/// divided. GPUs stay: a part's share follows them, and moving both at a time would never come to rest. A model has to fit
/// every backend that belongs there, also those that are down or cordoned, as it has when it moves. None if there is nothing to
/// divide.
pub(crate) fn pose(state: &ClusterState, rates: &BTreeMap<ModelId, f64>, settings: &EpochSettings) -> Option<Posed> {
    let working = |b: &&Backend| b.up() && b.duty().takes_work() && b.moving.is_none();
    let of = |id: SubclusterId| state.backends().values().filter(move |b| b.subcluster == id && working(b));
    let members: BTreeMap<SubclusterId, Vec<&Backend>> = state
        .subclusters()
        .keys()
        .map(|&id| (id, of(id).collect::<Vec<_>>()))
        .filter(|(_, backends)| !backends.is_empty())
        .collect();
    let at_home = |id: SubclusterId| {
        let here = move |b: &&Backend| b.subcluster == id || b.moving.is_some_and(|moving| moving.to == id);
        state.backends().values().filter(here).flat_map(|b| &b.gpus)
    };
    let names: BTreeSet<&str> = members.keys().flat_map(|&id| at_home(id)).map(|gpu| gpu.kind.as_str()).collect();
    let kinds: Vec<&str> = names.into_iter().collect();
    let place = |kind: &str| kinds.iter().position(|known| *known == kind);
    let limit = |bytes: u64| if bytes == 0 { NO_LIMIT_BYTES } else { bytes };
    let models: Vec<_> = state.models().iter().filter(|(_, m)| members.contains_key(&m.subcluster)).collect();
    if members.len() < 2 || models.is_empty() {
        return None;
    }

    let (mut parts, mut gpus, mut in_force) = (Vec::new(), Vec::new(), Vec::new());
    for (part, (id, entries)) in members.iter().enumerate() {
        let name = state.subclusters()[id].name.clone();
        let mut memory: BTreeMap<usize, u64> = BTreeMap::new();
        let mut held: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for gpu in at_home(*id) {
            let Some(kind) = place(&gpu.kind) else { continue };
            let least = memory.entry(kind).or_insert(u64::MAX);
            *least = (*least).min(limit(gpu.memory_bytes));
        }
        for gpu in entries.iter().flat_map(|entry| &entry.gpus) {
            let Some(kind) = place(&gpu.kind) else { continue };
            let name = gpu.id.to_string();
            held.entry(kind).or_default().push(name.clone());
            gpus.push(Gpu { name, kind, part: Some(part) });
        }
        let own: Vec<_> = memory.iter().map(|(&kind, &bytes)| PartKind { kind, memory_max_bytes: bytes }).collect();
        let count: usize = held.values().map(Vec::len).sum();
        let rate_max_rps = settings.subcluster_rate_max_rps;
        parts.push(Part { name: name.clone(), rate_max_rps, share: count as f64, kinds: own });
        let named = models.iter().filter(|(_, m)| m.subcluster == *id).map(|(_, m)| m.spec.name.clone());
        let gpus = held.into_iter().map(|(kind, names)| PartGpus {
            kind: kinds[kind].to_owned(),
            names,
            ..PartGpus::default()
        });
        in_force.push(PartPlan { name, models: named.collect(), gpus: gpus.collect(), ..PartPlan::default() });
    }
    let posed_models = models.iter().map(|&(id, model)| {
        let need = |kind: &&str| {
            let profile = model.spec.profiles.get(*kind)?;
            let table: Vec<_> = profile.latency_ns.iter().map(|&ns| Nanos::new(ns)).collect();
            Some(KindNeed {
                profile: LatencyProfile::from_table(&table).ok()?,
                static_memory_bytes: profile.static_memory_bytes,
                dynamic_memory_bytes: profile.dynamic_memory_bytes,
            })
        };
        let needs: Vec<_> = kinds.iter().map(need).collect();
        let bytes = needs.iter().flatten().map(|need| need.static_memory_bytes).max().unwrap_or(0);
        Model {
            name: model.spec.name.clone(),
            rate_rps: rates.get(id).copied().unwrap_or(0.0),
            slo: model.spec.slo(),
            needs,
            move_cost: bytes.max(MOVE_BYTES_LEAST) as f64,
            pin: None,
        }
    });
    let memory_of = |kind: &&str| {
        let gpus = members.keys().flat_map(|&id| at_home(id)).filter(|gpu| gpu.kind == **kind);
        gpus.map(|gpu| limit(gpu.memory_bytes)).min().unwrap_or(NO_LIMIT_BYTES)
    };
    let problem = Problem {
        kinds: kinds.iter().map(|kind| GpuKind { name: (*kind).to_owned(), memory_bytes: memory_of(kind) }).collect(),
        models: posed_models.collect(),
        parts,
        gpus,
        memory_weight: 1.0,
        disruption_max: settings.moved_bytes_max.map(|bytes| bytes as f64),
        steadiness: Steadiness::default(),
    };
    Some(Posed {
        problem,
        in_force: Plan { parts: in_force, ..Plan::default() },
        parts: members.keys().map(|&id| (state.subclusters()[&id].name.clone(), id)).collect(),
        models: models.iter().map(|&(&id, model)| (model.spec.name.clone(), id)).collect(),
    })
}

impl Posed {
    /// What changes from the plan in force to `plan`, and the moves that lead there: the first so many that a plan may have, the
    /// others are left to the next epoch.
    pub(crate) fn moves(&self, plan: &Plan) -> (Change, Vec<WantedMove>) {
        let change = Change::between(&self.problem, &self.in_force, plan);
        let wanted = change.moved_models.iter().filter_map(|moved| {
            let (what, from) = (Moved::Model(*self.models.get(&moved.name)?), *self.parts.get(&moved.from)?);
            Some(WantedMove { what, from, to: *self.parts.get(&moved.to)? })
        });
        let moves = wanted.take(PLAN_MOVES_MAX).collect();
        (change, moves)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use symphony_cluster_state::{
        Action, BackendRegistration, Command, GpuOffer, KindProfile, ModelSource, ModelSpec, NodeRegistration,
        Operation,
    };
    use symphony_partitioner::{Budget, solve, verify};
    use symphony_types::{BackendId, BootId, NodeId, OperationId, RequestValue, Signature};

    use super::*;

    fn apply(state: &mut ClusterState, command: &Command) {
        let outcome = state.apply(state.applied_index() + 1, command).outcome;
        assert!(outcome.is_ok(), "{command:?}: {outcome:?}");
    }

    /// A replica, and two backends of one GPU with 1000 MB in each sub-cluster.
    pub(crate) fn cluster(subclusters: &[&str]) -> ClusterState {
        let mut state = ClusterState::default();
        apply(
            &mut state,
            &Command::RegisterNode(NodeRegistration {
                node: NodeId::new(1),
                boot: BootId::new(1),
                control_addr: "n:1".into(),
                dispatch_addr: "n:2".into(),
                beat_addr: "n:3".into(),
                disk: 1,
                avoid: None,
            }),
        );
        for subcluster in subclusters {
            for index in 1..=2 {
                let registration = BackendRegistration {
                    name: format!("{subcluster}-{index}"),
                    boot: BootId::new(1),
                    exec_addr: "b:1".into(),
                    subcluster: (*subcluster).into(),
                    executor: "emulated".into(),
                    gpus: vec![GpuOffer { kind: "gpu".into(), memory_bytes: 1000 << 20 }],
                    avoid: None,
                };
                apply(&mut state, &Command::RegisterBackend(registration));
            }
        }
        state
    }

    /// Loads a model of 100 MB.
    pub(crate) fn loaded(state: &mut ClusterState, name: &str, subcluster: &str) {
        let profile = KindProfile {
            latency_ns: (1..=8).map(|b| 5_000_000 + 1_000_000 * b).collect(),
            static_memory_bytes: 100 << 20,
            dynamic_memory_bytes: 0,
        };
        let spec = ModelSpec {
            name: name.into(),
            subcluster: subcluster.into(),
            slo_ns: 100_000_000,
            source: ModelSource::Emulated,
            signature: Signature { inputs: vec![], outputs: vec![] },
            profiles: BTreeMap::from([("gpu".to_owned(), profile)]),
            policy: String::new(),
            value: RequestValue::ONE,
        };
        let (id, actor) = (OperationId::new(state.applied_index().into()), "operator/ann".to_owned());
        let action = Action::LoadModel(spec);
        apply(state, &Command::Operate(Operation { id, actor, at_unix_ms: 0, avoid: None, action }));
    }

    fn rates(of: &[f64]) -> BTreeMap<ModelId, f64> {
        (1..).map(ModelId::new).zip(of.iter().copied()).collect()
    }

    #[test]
    fn a_loaded_sub_cluster_gives_models_to_an_idle_one_and_the_plan_is_in_force_after_its_moves() {
        let mut state = cluster(&["left", "right"]);
        for name in ["a", "b", "c", "d"] {
            loaded(&mut state, name, "left");
        }
        let rates = rates(&[100.0, 100.0, 100.0, 100.0]);
        let posed = pose(&state, &rates, &EpochSettings::default()).unwrap();
        let plan = solve(&posed.problem, Some(&posed.in_force), &Budget::for_models(4)).unwrap();
        assert_eq!(verify(&posed.problem, Some(&posed.in_force), &plan), []);
        let (change, moves) = posed.moves(&plan);
        assert_eq!(moves.len(), 2, "{moves:?}");
        assert!(moves.iter().all(|m| m.from == SubclusterId::new(1) && m.to == SubclusterId::new(2)), "{moves:?}");
        assert!(change.before.unwrap().rate_imbalance > 1.9 && change.after.rate_imbalance < 0.01);

        let proposal = symphony_cluster_state::PlanProposal {
            epoch: state.epoch(),
            cause: String::new(),
            summary: String::new(),
            moves,
            adopt: true,
        };
        apply(&mut state, &Command::ProposePlan(proposal));
        let ready = symphony_cluster_state::ReplicaState::Ready;
        for model in 1..=4 {
            for backend in 3..=4 {
                let (model, backend, boot) = (ModelId::new(model), BackendId::new(backend), BootId::new(1));
                let report = Command::ReportModel { model, backend, boot, state: ready.clone() };
                state.apply(state.applied_index() + 1, &report);
            }
        }
        let posed = pose(&state, &rates, &EpochSettings::default()).unwrap();
        let plan = solve(&posed.problem, Some(&posed.in_force), &Budget::for_models(4)).unwrap();
        assert_eq!(posed.moves(&plan).1, [], "solving again from the adopted plan changes nothing (C4)");
    }

    #[test]
    fn one_sub_cluster_or_no_model_is_no_problem_and_what_takes_no_work_is_left_out() {
        let mut state = cluster(&["left"]);
        loaded(&mut state, "a", "left");
        assert!(pose(&state, &rates(&[1.0]), &EpochSettings::default()).is_none());
        let state = cluster(&["left", "right"]);
        assert!(pose(&state, &rates(&[]), &EpochSettings::default()).is_none());

        let mut state = cluster(&["left", "right", "third"]);
        loaded(&mut state, "a", "left");
        loaded(&mut state, "b", "third");
        for backend in [5, 6] {
            apply(&mut state, &Command::BackendDown { backend: BackendId::new(backend), boot: BootId::new(1) });
        }
        let posed = pose(&state, &rates(&[1.0, 1.0]), &EpochSettings::default()).unwrap();
        assert_eq!(posed.problem.parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>(), ["left", "right"]);
        assert_eq!(posed.problem.models.len(), 1, "the third one's model stays where it is");
    }
}
