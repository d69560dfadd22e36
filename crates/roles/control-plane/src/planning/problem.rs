//! Translates the cluster into a problem for the partitioner, and its solution into moves.

use std::collections::{BTreeMap, BTreeSet};

use symphony_cluster_state::{
    Backend, ClusterState, ERROR_BYTES_MAX, LeftAlone, Moved, PLAN_LEFT_ALONE_MAX, PLAN_MOVES_MAX, WantedMove,
};
use symphony_partitioner::{
    Arranged, Change, GpuKind, KindNeed, MOVE_BYTES_LEAST, Model, NO_LIMIT_BYTES, Part, PartPlan, PartitionPlan,
    Problem, Steadiness, Unit, UnitGpu,
};
use symphony_types::{BackendId, LatencyProfile, ModelId, Nanos, SubclusterId};

use crate::planning::reported::Measured;
use crate::planning::settings::EpochSettings;

/// The cluster as a problem, and the plan that is in force.
#[derive(Debug)]
pub(crate) struct EpochProblem {
    pub(crate) problem: Problem,
    pub(crate) units: Vec<Unit>,
    pub(crate) in_force: PartitionPlan,
    parts: Vec<SubclusterId>,
    models: BTreeMap<String, ModelId>,
    /// The backend of each unit.
    backends: Vec<BackendId>,
}

#[derive(Debug)]
pub(crate) struct EpochResult {
    pub(crate) change: Change,
    /// Models first, then backends; at most the limit of a plan, the rest is left to the next epoch.
    pub(crate) moves: Vec<WantedMove>,
    /// Models that fit nowhere, and why.
    pub(crate) left_alone: Vec<LeftAlone>,
}

/// Poses the problem. The parts are the sub-clusters with a backend that takes work; their models are divided and
/// their backends distributed. A model has to fit every backend of its part, also those that are down or cordoned,
/// just as when it moves. Batch latencies are the measured ones. None if there is nothing to divide.
pub(crate) fn pose(state: &ClusterState, measured: &Measured, settings: &EpochSettings) -> Option<EpochProblem> {
    let works = |b: &Backend| b.up() && b.duty().takes_work() && b.moving.is_none();
    let parts: Vec<SubclusterId> = {
        let served = |id: &SubclusterId| state.backends().values().any(|b| b.subcluster == *id && works(b));
        state.subclusters().keys().copied().filter(served).collect()
    };
    let part_of = |id: SubclusterId| parts.iter().position(|&part| part == id);
    let models: Vec<_> = state.models().iter().filter(|(_, m)| part_of(m.subcluster).is_some()).collect();
    if parts.len() < 2 || models.is_empty() {
        return None;
    }
    // A moving backend or model counts at its origin and at its destination.
    let homes = |b: &Backend| [Some(b.subcluster), b.moving.map(|moving| moving.to)].into_iter().flatten();
    let at_home: Vec<(BackendId, &Backend, usize)> = state
        .backends()
        .iter()
        .flat_map(|(&id, b)| homes(b).filter_map(part_of).map(move |part| (id, b, part)))
        .collect();
    let names: BTreeSet<&str> = at_home.iter().flat_map(|(_, b, _)| &b.gpus).map(|gpu| gpu.kind.as_str()).collect();
    let kinds: Vec<&str> = names.into_iter().collect();
    let place = |kind: &str| kinds.iter().position(|known| *known == kind);
    let limit = |bytes: u64| if bytes == 0 { NO_LIMIT_BYTES } else { bytes };
    let unit = |&(_, b, part): &(BackendId, &Backend, usize)| {
        let gpus = b.gpus.iter().filter_map(|gpu| {
            let (name, kind) = (gpu.id.to_string(), place(&gpu.kind)?);
            Some(UnitGpu { name, kind, memory_bytes: limit(gpu.memory_bytes) })
        });
        Unit { part, works: works(b), gpus: gpus.collect() }
    };
    let units: Vec<Unit> = at_home.iter().map(unit).collect();
    let memory_of = |kind: usize| {
        let gpus = units.iter().flat_map(|unit| &unit.gpus).filter(|gpu| gpu.kind == kind);
        gpus.map(|gpu| gpu.memory_bytes).max().unwrap_or(NO_LIMIT_BYTES)
    };
    let name = |id: SubclusterId| state.subclusters()[&id].name.clone();
    let rate_max_rps = settings.subcluster_rate_max_rps;
    // Shares and kinds follow from the units.
    let part = |&id: &SubclusterId| Part { name: name(id), rate_max_rps, share: 1.0, kinds: Vec::new() };
    let kind = |(at, kind): (usize, &&str)| GpuKind { name: (*kind).to_owned(), memory_bytes: memory_of(at) };
    let problem = Problem {
        kinds: kinds.iter().enumerate().map(kind).collect(),
        models: models.iter().map(|&(&id, model)| pose_model(id, model, &kinds, measured)).collect(),
        parts: parts.iter().map(part).collect(),
        gpus: Vec::new(),
        memory_weight: 1.0,
        disruption_max: settings.moved_bytes_max.map(|bytes| bytes as f64),
        steadiness: Steadiness::default(),
    };
    let in_force = |&id: &SubclusterId| {
        let here = models.iter().filter(|(_, m)| m.subcluster == id).map(|(_, m)| m.spec.name.clone());
        PartPlan { name: name(id), models: here.collect(), ..PartPlan::default() }
    };
    Some(EpochProblem {
        problem,
        units,
        in_force: PartitionPlan { parts: parts.iter().map(in_force).collect(), ..PartitionPlan::default() },
        models: models.iter().map(|&(&id, model)| (model.spec.name.clone(), id)).collect(),
        backends: at_home.iter().map(|&(id, _, _)| id).collect(),
        parts,
    })
}

/// The model with its measured rate, and what it needs on each kind of GPU that it has a profile for.
fn pose_model(id: ModelId, model: &symphony_cluster_state::Model, kinds: &[&str], measured: &Measured) -> Model {
    let need = |kind: &&str| {
        let profile = model.spec.profiles.get(*kind)?;
        let table: Vec<_> = profile.latency_ns.iter().map(|&ns| Nanos::new(ns)).collect();
        let given = LatencyProfile::from_table(&table).ok()?;
        Some(KindNeed {
            profile: measured.profiles.measured(id, kind, given),
            static_memory_bytes: profile.static_memory_bytes,
            dynamic_memory_bytes: profile.dynamic_memory_bytes,
        })
    };
    let needs: Vec<_> = kinds.iter().map(need).collect();
    let bytes = needs.iter().flatten().map(|need| need.static_memory_bytes).max().unwrap_or(0);
    Model {
        name: model.spec.name.clone(),
        rate_rps: measured.rates.get(&id).copied().unwrap_or(0.0),
        slo: model.spec.slo(),
        needs,
        move_cost: bytes.max(MOVE_BYTES_LEAST) as f64,
        pin: None,
    }
}

impl EpochProblem {
    /// The moves from the plan in force to the solution.
    ///
    /// # Errors
    /// If the solution breaks a limit, which is a defect of the solver.
    pub(crate) fn found(&self, arranged: &Arranged) -> Result<EpochResult, String> {
        if let Some(violation) = arranged.verify(&self.units, &self.in_force).first() {
            return Err(format!("the solver's plan breaks a limit, which is a defect: {violation}"));
        }
        let change = Change::between(&arranged.problem, &self.in_force, &arranged.plan);
        let part = |name: &str| self.problem.parts.iter().position(|part| part.name == name).map(|at| self.parts[at]);
        let models = change.moved_models.iter().filter_map(|moved| {
            let what = Moved::Model(*self.models.get(&moved.name)?);
            Some(WantedMove { what, from: part(&moved.from)?, to: part(&moved.to)? })
        });
        let backends = self.units.iter().zip(&arranged.places).zip(&self.backends);
        let backends = backends.filter(|((unit, place), _)| unit.part != **place).map(|((unit, &place), &backend)| {
            WantedMove { what: Moved::Backend(backend), from: self.parts[unit.part], to: self.parts[place] }
        });
        let moves = models.chain(backends).take(PLAN_MOVES_MAX).collect();
        let left_alone = arranged.unplaceable.iter().filter_map(|aside| {
            let mut reason = aside.why.to_string();
            reason.truncate(reason.floor_char_boundary(ERROR_BYTES_MAX));
            Some(LeftAlone { model: *self.models.get(&aside.model.name)?, reason })
        });
        let left_alone = left_alone.take(PLAN_LEFT_ALONE_MAX).collect();
        Ok(EpochResult { change, moves, left_alone })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use symphony_cluster_state::{
        Action, BackendRegistration, Command, GpuOffer, KindProfile, ModelSource, ModelSpec, NodeRegistration,
        Operation,
    };
    use symphony_partitioner::{Budget, arrange};
    use symphony_types::{BackendId, BootId, NodeId, OperationId, RequestValue, Signature};

    use symphony_protocol::control as pb;

    use super::*;

    /// A lead's report: all batches of the model take `factor` times as long as given.
    pub(crate) fn learnt(model: u32, kind: &str, factor: f32) -> pb::LearntProfile {
        let points = vec![pb::StretchPoint { batch: 1, factor }];
        pb::LearntProfile { model, gpu_kind: kind.to_owned(), points, measured_max: 8 }
    }

    fn apply(state: &mut ClusterState, command: &Command) {
        let outcome = state.apply(state.applied_index() + 1, command).outcome;
        assert!(outcome.is_ok(), "{command:?}: {outcome:?}");
    }

    /// A replica, and two backends of one GPU with 1000 MB in each sub-cluster.
    pub(crate) fn cluster(subclusters: &[&str]) -> ClusterState {
        cluster_from(ClusterState::default(), subclusters)
    }

    /// The same, of a state without a history.
    pub(crate) fn cluster_from(mut state: ClusterState, subclusters: &[&str]) -> ClusterState {
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
        loaded_within(state, name, subcluster, 100_000_000);
    }

    fn loaded_within(state: &mut ClusterState, name: &str, subcluster: &str, slo_ns: u64) {
        load(state, name, subcluster, slo_ns, Signature { inputs: vec![], outputs: vec![] });
    }

    /// Loads a model of 100 MB with these inputs and outputs.
    pub(crate) fn loaded_as(state: &mut ClusterState, name: &str, subcluster: &str, signature: Signature) {
        load(state, name, subcluster, 100_000_000, signature);
    }

    fn load(state: &mut ClusterState, name: &str, subcluster: &str, slo_ns: u64, signature: Signature) {
        let profile = KindProfile {
            latency_ns: (1..=8).map(|b| 5_000_000 + 1_000_000 * b).collect(),
            static_memory_bytes: 100 << 20,
            dynamic_memory_bytes: 0,
        };
        let spec = ModelSpec {
            name: name.into(),
            subcluster: subcluster.into(),
            slo_ns,
            source: ModelSource::Emulated,
            signature,
            transforms: Default::default(),
            profiles: BTreeMap::from([("gpu".to_owned(), profile)]),
            policy: Default::default(),
            value: RequestValue::ONE,
        };
        operate(state, Action::LoadModel(spec));
    }

    pub(crate) fn operate(state: &mut ClusterState, action: Action) {
        let (id, actor) = (OperationId::new(state.applied_index().into()), "operator/ann".to_owned());
        apply(state, &Command::Operate(Operation { id, actor, at_unix_ms: 0, avoid: None, action }));
    }

    pub(crate) fn rates(of: &[f64]) -> Measured {
        let rates = (1..).map(ModelId::new).zip(of.iter().copied()).collect();
        Measured { rates, ..Measured::default() }
    }

    fn planned(posed: &EpochProblem) -> EpochResult {
        let budget = Budget::for_models(posed.problem.models.len());
        posed.found(&arrange(&posed.problem, &posed.units, &posed.in_force, &budget).unwrap()).unwrap()
    }

    #[test]
    fn a_backend_goes_where_its_gpu_is_needed_and_what_is_too_slow_is_named() {
        let mut state = cluster(&["left", "right"]);
        for (name, subcluster) in [("hot", "left"), ("a", "right"), ("slow", "right")] {
            loaded(&mut state, name, subcluster);
        }
        // With batches of eight in 13 ms a GPU runs 615 items per second.
        let mut rates = rates(&[1400.0, 10.0, 10.0]);
        let found = planned(&pose(&state, &rates, &EpochSettings::default()).unwrap());
        let (left, right) = (SubclusterId::new(1), SubclusterId::new(2));
        let backend = WantedMove { what: Moved::Backend(BackendId::new(4)), from: right, to: left };
        assert_eq!((found.moves, found.left_alone), (vec![backend], vec![]));
        rates.rates.insert(ModelId::new(1), 10.0);

        loaded_within(&mut state, "crawl", "left", 1_000_000);
        let found = planned(&pose(&state, &rates, &EpochSettings::default()).unwrap());
        let [left_alone] = &found.left_alone[..] else { panic!("{found:?}") };
        assert_eq!(left_alone.model, ModelId::new(4));
        assert!(left_alone.reason.contains("more than its SLO"), "{left_alone:?}");
    }

    #[test]
    fn a_model_that_is_measured_to_be_slower_than_given_gets_more_gpus() {
        let mut state = cluster(&["left", "right"]);
        for (name, subcluster) in [("slow", "left"), ("a", "right")] {
            loaded(&mut state, name, subcluster);
        }
        // By its given profile a GPU runs 615 items per second: 700 are few for two GPUs.
        let mut measured = rates(&[700.0, 10.0]);
        let planned = |measured: &Measured| planned(&pose(&state, measured, &EpochSettings::default()).unwrap()).moves;
        assert_eq!(planned(&measured), []);
        let load = pb::SubclusterLoad { subcluster: 1, learnt: vec![learnt(1, "gpu", 2.0)], ..Default::default() };
        measured.profiles.take(&state, &load);
        let (left, right) = (SubclusterId::new(1), SubclusterId::new(2));
        let backend = WantedMove { what: Moved::Backend(BackendId::new(4)), from: right, to: left };
        assert_eq!(planned(&measured), [backend], "in truth it runs 307");
        assert_eq!(measured.work().into_values().collect::<Vec<_>>(), [1400.0, 10.0], "and an epoch is due");
    }

    #[test]
    fn a_loaded_sub_cluster_gives_models_to_an_idle_one_and_the_plan_is_in_force_after_its_moves() {
        let mut state = cluster(&["left", "right"]);
        for name in ["a", "b", "c", "d"] {
            loaded(&mut state, name, "left");
        }
        let rates = rates(&[100.0, 100.0, 100.0, 100.0]);
        let posed = pose(&state, &rates, &EpochSettings::default()).unwrap();
        let EpochResult { change, moves, left_alone } = planned(&posed);
        assert_eq!(left_alone, []);
        assert_eq!(moves.len(), 2, "{moves:?}");
        assert!(moves.iter().all(|m| m.from == SubclusterId::new(1) && m.to == SubclusterId::new(2)), "{moves:?}");
        assert!(change.before.unwrap().rate_imbalance > 1.9 && change.after.rate_imbalance < 0.01);

        let proposal = symphony_cluster_state::PlanProposal {
            epoch: state.epoch(),
            cause: String::new(),
            summary: String::new(),
            moves,
            adopt: true,
            ..Default::default()
        };
        apply(&mut state, &Command::ProposePlan(proposal));
        let ready = symphony_cluster_state::HolderState::Ready;
        for model in 1..=4 {
            for backend in 3..=4 {
                let (model, backend, boot) = (ModelId::new(model), BackendId::new(backend), BootId::new(1));
                let report = Command::ReportModel { model, backend, boot, state: ready.clone(), load_ns: 0 };
                state.apply(state.applied_index() + 1, &report);
            }
        }
        let posed = pose(&state, &rates, &EpochSettings::default()).unwrap();
        assert_eq!(planned(&posed).moves, [], "solving again from the adopted plan changes nothing (C4)");
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
