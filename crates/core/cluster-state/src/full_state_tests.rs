//! A state that is full in every respect, with names of maximal length, fits into a snapshot; one more of anything is
//! refused.
//!
//! `cargo test -p symphony-cluster-state --lib full_state -- --nocapture` prints the size of each part.

use rkyv::api::high::HighSerializer;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;
use rkyv::{Serialize, rancor};
use symphony_types::{
    BackendId, BootId, CutDigest, Level, MODEL_CUTS_MAX, ModelId, NodeId, OperationId, RequestValue, Signature,
    SubclusterId, Transforms,
};

use crate::command::{BackendRegistration, Command, FrontendRegistration, GpuOffer, NodeRegistration};
use crate::epoch_plan::{LeftAlone, Moved, PlanProposal, WantedMove};
use crate::invariants::check;
use crate::limits::*;
use crate::operation::{Action, Operation};
use crate::refusal::Refusal;
use crate::reply::Outcome;
use crate::state::{ClusterState, Holder, HolderState};
use crate::traffic_split::Traffic;
use symphony_replicated::{KindProfile, ModelSource, ModelSpec};

/// Sub-clusters with models, as many as backends in each: this maximises the number of copies. The other sub-clusters
/// have one backend each and no models.
const SERVING: usize = 256;
const BACKENDS_EACH: usize = BACKENDS_MAX / SERVING;
const MODELS_EACH: usize = MODELS_MAX / SERVING;
const GPUS_EACH: usize = GPUS_MAX / BACKENDS_MAX;
const _: () = assert!(SERVING * BACKENDS_EACH * MODELS_EACH == HOLDERS_MAX);

/// Bytes of a model's specification, such that all of them use up their total exactly.
const SPEC_BYTES: usize = MODEL_BYTES_TOTAL_MAX / MODELS_MAX;

/// A name of maximal length.
fn name(what: &str, number: usize) -> String {
    let head = format!("{what}-{number}-");
    format!("{head}{}", "x".repeat(NAME_BYTES_MAX - head.len()))
}

/// An address of maximal length.
fn address(number: usize) -> String {
    let tail = format!("{number:08}:65535");
    format!("{}{tail}", "h".repeat(ADDRESS_BYTES_MAX - tail.len()))
}

fn words(bytes: usize) -> String {
    "w".repeat(bytes)
}

fn kind() -> String {
    name("kind", 0)
}

/// The sub-cluster of a model, and of a backend once all sub-clusters exist.
fn home(number: usize) -> usize {
    number % SERVING
}

fn node(number: usize) -> Command {
    let id = NodeId::new(number as u64 + 1);
    let (control_addr, dispatch_addr, beat_addr) = (address(number), address(number), address(number));
    let boot = BootId::new(1);
    Command::RegisterNode(NodeRegistration {
        node: id,
        boot,
        control_addr,
        dispatch_addr,
        beat_addr,
        disk: 1,
        avoid: None,
    })
}

fn backend(number: usize, boot: u64, subcluster: usize, gpus: usize) -> Command {
    Command::RegisterBackend(BackendRegistration {
        name: name("backend", number),
        boot: BootId::new(boot),
        exec_addr: address(number),
        subcluster: name("pool", subcluster),
        executor: name("executor", 0),
        gpus: vec![GpuOffer { kind: kind(), memory_bytes: 0 }; gpus],
        avoid: None,
    })
}

fn frontend(number: usize) -> Command {
    Command::RegisterFrontend(FrontendRegistration {
        name: name("frontend", number),
        boot: BootId::new(1),
        data_addr: address(number),
        console_addr: address(number),
    })
}

fn operate(id: usize, action: Action) -> Command {
    let id = OperationId::new(id as u128 + 1);
    Command::Operate(Operation { id, actor: name("actor", 0), at_unix_ms: u64::MAX, avoid: None, action })
}

/// A specification of this size by its own count, a multiple of 8 more than without its profile.
fn spec(model: String, home: usize, kind: String, bytes: usize) -> ModelSpec {
    let profile = |latencies: usize| KindProfile {
        latency_ns: (1..=latencies as u64).collect(),
        static_memory_bytes: 1,
        dynamic_memory_bytes: 1,
    };
    let mut spec = ModelSpec {
        name: model,
        subcluster: name("pool", home),
        slo_ns: u64::MAX,
        source: ModelSource::Onnx(words(PATH_BYTES_MAX)),
        signature: Signature { inputs: Vec::new(), outputs: Vec::new() },
        transforms: Box::<Transforms>::default(),
        profiles: [(kind.clone(), profile(0))].into(),
        policy: Default::default(),
        value: RequestValue::ONE,
    };
    spec.profiles = [(kind, profile((bytes - spec.weight_bytes()) / 8))].into();
    assert_eq!(spec.weight_bytes(), bytes);
    spec
}

fn load(number: usize) -> Command {
    operate(number, Action::LoadModel(spec(name("model", number), home(number), kind(), SPEC_BYTES)))
}

/// A specification without a profile for some GPU of the sub-cluster, whose refusal is as long as possible.
fn load_in_vain(number: usize) -> Command {
    let other = spec(name("model", MODELS_MAX + number), home(number), name("kind", 1), SPEC_BYTES);
    operate(2 * MODELS_MAX + number, Action::LoadModel(other))
}

fn unload(id: usize, number: usize) -> Command {
    operate(id, Action::UnloadModel { name: name("model", number) })
}

fn traffic(number: usize) -> Command {
    let traffic = Traffic { weights: [(1, 1)].into(), shadow: None };
    operate(3 * MODELS_MAX + number, Action::SetTraffic { model: name("model", number), traffic })
}

fn failed(model: ModelId, backend: BackendId, boot: BootId) -> Command {
    let state = HolderState::Failed(words(ERROR_BYTES_MAX));
    Command::ReportModel { model, backend, boot, state, load_ns: 0 }
}

/// All models of a sub-cluster share their shallowest cut point.
fn cuts(model: ModelId, home: SubclusterId, backend: BackendId) -> Command {
    let of = |depth: usize| match depth {
        0 => u128::from(home.get()),
        _ => (u128::from(model.get()) << 64) + depth as u128,
    };
    let cuts = (0..MODEL_CUTS_MAX).map(|depth| CutDigest::new(of(depth))).collect();
    Command::ReportCuts { model, backend, boot: BootId::new(2), cuts }
}

/// A plan whose moves are all cancelled at once with long reasons: they lead to a backend with GPUs for which no model
/// has a profile.
fn plan(state: &ClusterState, to: SubclusterId, round: usize) -> Command {
    let models = state.models.iter().skip(round * PLAN_MOVES_MAX % MODELS_MAX).take(PLAN_MOVES_MAX);
    let moves = models.map(|(&id, model)| WantedMove { what: Moved::Model(id), from: model.subcluster, to });
    let left = |id: usize| LeftAlone { model: ModelId::new(id as u32 + 1), reason: words(ERROR_BYTES_MAX) };
    Command::ProposePlan(PlanProposal {
        cause: words(PLAN_WORDS_BYTES_MAX),
        summary: words(PLAN_WORDS_BYTES_MAX),
        moves: moves.collect(),
        left_alone: (0..PLAN_LEFT_ALONE_MAX).map(left).collect(),
        adopt: true,
        ..PlanProposal::default()
    })
}

fn bytes_of<T>(part: &T) -> usize
where
    T: for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, rancor::Error>>,
{
    rkyv::to_bytes::<rancor::Error>(part).unwrap().len()
}

/// A state while it is filled.
#[derive(Default)]
struct Filling {
    state: ClusterState,
    index: u64,
}

impl Filling {
    /// Like `apply` without the invariants, which walk the whole state: they are checked when it is full.
    fn ask(&mut self, command: &Command) -> Outcome {
        // As read from the log, where no command is too long.
        let command = Command::decode(&command.encode().unwrap()).unwrap();
        self.index += 1;
        self.state.step(self.index, 0, &command).outcome
    }

    #[track_caller]
    fn done(&mut self, command: &Command) {
        self.ask(command).unwrap();
    }

    #[track_caller]
    fn full(&mut self, command: &Command, what: &str, max: usize) {
        assert_eq!(self.ask(command), Err(Refusal::Limit { what: what.into(), max: max as u64 }));
    }

    /// The maximum of nodes, sub-clusters, backends and frontends. The last backend is alone in its sub-cluster and has
    /// GPUs of its own kind.
    fn with_processes() -> Self {
        let mut filling = Self::default();
        for number in 0..NODES_REMOVED_MAX {
            filling.done(&node(number));
            let remove = Some(NodeId::new(number as u64 + 1));
            filling.done(&operate(5 * MODELS_MAX + number, Action::ChangeReplicas { add: None, remove }));
        }
        (NODES_REMOVED_MAX..NODES_REMOVED_MAX + NODES_MAX).for_each(|number| filling.done(&node(number)));
        // A sub-cluster remains when its backend moves away, so one backend after the other creates each.
        (0..SUBCLUSTERS_MAX).for_each(|number| filling.done(&backend(number, 1, number, 1)));
        for number in 0..BACKENDS_MAX - 1 {
            filling.done(&backend(number, 2, home(number), GPUS_EACH));
        }
        let alone = backend(BACKENDS_MAX - 1, 2, SUBCLUSTERS_MAX - 1, GPUS_EACH);
        let Command::RegisterBackend(mut alone) = alone else { unreachable!() };
        alone.gpus.iter_mut().for_each(|gpu| gpu.kind = name("kind", 2));
        filling.done(&Command::RegisterBackend(alone));
        (0..FRONTENDS_MAX).for_each(|number| filling.done(&frontend(number)));
        filling
    }

    /// Models, reports of every backend on each of its models, operations, and plans.
    fn with_all() -> Self {
        let mut filling = Self::with_processes();
        (0..MODELS_MAX).for_each(|number| filling.done(&load(number)));
        (1..=TRAFFIC_SPLITS_MAX).for_each(|number| filling.done(&traffic(number)));
        let mut by_home = vec![Vec::new(); SUBCLUSTERS_MAX + 1];
        for (&id, backend) in &filling.state.backends {
            by_home[backend.subcluster.get() as usize].push((id, backend.boot));
        }
        let models: Vec<_> = filling.state.models.iter().map(|(&id, model)| (id, model.subcluster)).collect();
        // Each report looks at all models, so most are put where they would be stored; the last ones are asked for.
        let put = models.len() - MODELS_EACH;
        for (number, (model, subcluster)) in models.into_iter().enumerate() {
            for &(backend, boot) in &by_home[subcluster.get() as usize] {
                if number < put {
                    let holder = Holder { boot, state: HolderState::Failed(words(ERROR_BYTES_MAX)) };
                    filling.state.models.get_mut(&model).unwrap().holders.insert(backend, holder);
                } else {
                    filling.done(&failed(model, backend, boot));
                }
            }
        }
        let to = filling.state.subcluster_named(&name("pool", SUBCLUSTERS_MAX - 1)).unwrap().0;
        for round in 0..PLANS_KEPT {
            let plan = plan(&filling.state, to, round);
            filling.done(&plan);
        }
        // One more must fit in other respects, or else that would be the reason for the refusal.
        filling.done(&unload(6 * MODELS_MAX, 0));
        for number in 1..=OPERATIONS_KEPT {
            let refused = filling.ask(&load_in_vain(number));
            assert!(matches!(refused, Err(Refusal::ProfileMissing { .. })), "{refused:?}");
        }
        filling.done(&load(0));
        let id = filling.state.model_named(&name("model", 0)).unwrap().0;
        for number in 0..BACKENDS_EACH {
            let backend = BackendId::new((number * SERVING + home(0)) as u32 + 1);
            filling.done(&failed(id, backend, BootId::new(2)));
        }
        // Below level 3 a state has no trunks.
        filling.done(&operate(8 * MODELS_MAX, Action::RaiseLevel { level: Level::NEWEST }));
        let models: Vec<_> = filling.state.models.iter().map(|(&id, model)| (id, model.subcluster)).collect();
        for (model, home) in models {
            let backend = by_home[home.get() as usize][0].0;
            filling.done(&cuts(model, home, backend));
        }
        filling
    }
}

#[test]
fn a_state_with_as_much_as_its_limits_allow_fits_a_snapshot_and_takes_no_more() {
    let mut filling = Filling::with_all();
    let state = &filling.state;
    assert_eq!(check(state), Ok(()));
    let gpus: usize = state.backends.values().map(|backend| backend.gpus.len()).sum();
    let holders: usize = state.models.values().map(|model| model.holders.len()).sum();
    let reasons = state.plans.iter().flat_map(|plan| &plan.moves).filter(|planned| match &planned.progress {
        crate::epoch_plan::MoveProgress::GivenUp(reason) => reason.len() == ERROR_BYTES_MAX,
        _ => false,
    });
    assert_eq!((state.nodes.len(), state.removed_nodes.len()), (NODES_MAX, NODES_REMOVED_MAX));
    assert_eq!((state.subclusters.len(), state.plans.len()), (SUBCLUSTERS_MAX, PLANS_KEPT));
    assert_eq!((state.backends.len(), gpus, state.frontends.len()), (BACKENDS_MAX, GPUS_MAX, FRONTENDS_MAX));
    assert_eq!((state.models.len(), state.operations.len()), (MODELS_MAX, OPERATIONS_KEPT));
    assert_eq!(state.models.values().map(|model| model.spec.weight_bytes()).sum::<usize>(), MODEL_BYTES_TOTAL_MAX);
    assert_eq!(reasons.count(), PLANS_KEPT * PLAN_MOVES_MAX, "every move was given up with a long reason");
    let shared = state.trunks.values().filter(|trunk| trunk.shared.is_some() && trunk.cuts.len() == MODEL_CUTS_MAX);
    assert_eq!(shared.count(), MODELS_MAX, "every model shares a trunk");
    // The isolated backend has no models.
    assert_eq!(holders, HOLDERS_MAX - MODELS_EACH);

    let snapshot = filling.state.snapshot();
    let restored = ClusterState::restore(&snapshot).unwrap();
    assert!(restored == filling.state && restored.snapshot() == snapshot, "the same state, the same bytes");
    let mib = snapshot.len() as f64 / f64::from(1 << 20);
    for (part, bytes) in [
        ("models and their holders", bytes_of(&filling.state.models)),
        ("backends and GPUs", bytes_of(&filling.state.backends)),
        ("frontends", bytes_of(&filling.state.frontends)),
        ("operations", bytes_of(&filling.state.operations)),
        ("plans", bytes_of(&filling.state.plans)),
        ("trunks", bytes_of(&filling.state.trunks)),
        ("sub-clusters", bytes_of(&filling.state.subclusters)),
    ] {
        println!("{part}: {:.1} MiB", bytes as f64 / f64::from(1 << 20));
    }
    println!("{mib:.1} MiB of {} after {} commands", SNAPSHOT_BYTES_MAX >> 20, filling.index);

    filling.full(&node(NODES_REMOVED_MAX + NODES_MAX), "scheduler replicas", NODES_MAX);
    filling.full(&backend(0, 3, SUBCLUSTERS_MAX, GPUS_EACH), "sub-clusters", SUBCLUSTERS_MAX);
    filling.full(&backend(BACKENDS_MAX, 1, 0, 1), "living backends", BACKENDS_MAX);
    filling.full(&backend(0, 3, home(0), GPUS_EACH + 1), "GPUs", GPUS_MAX);
    filling.full(&frontend(FRONTENDS_MAX), "frontends", FRONTENDS_MAX);
    filling.full(&load(MODELS_MAX), "models", MODELS_MAX);
    filling.done(&unload(7 * MODELS_MAX, 0));
    let load_of = |id, bytes| operate(id, Action::LoadModel(spec(name("model", 0), home(0), kind(), bytes)));
    let larger = load_of(7 * MODELS_MAX + 1, SPEC_BYTES + 8);
    filling.full(&larger, "bytes of model specifications", MODEL_BYTES_TOTAL_MAX);
    filling.done(&load_of(7 * MODELS_MAX + 2, SPEC_BYTES));
    assert_eq!(check(&filling.state), Ok(()));
}
