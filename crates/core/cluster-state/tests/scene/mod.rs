//! Commands as the tests write them, in one line each.
#![allow(dead_code, unreachable_pub)] // Each test takes what it needs.

use std::sync::atomic::{AtomicU64, Ordering};

use symphony_cluster_state::{
    Action, BackendRegistration, ClusterState, Command, Effect, FrontendRegistration, GpuOffer, HolderState,
    KindProfile, ModelSource, ModelSpec, Moved, NodeRegistration, Operation, Outcome, PlanProposal, Traffic,
    WantedMove,
};
use symphony_pipeline::{DeclaredStage, InputData, PipelineDeclaration, PipelineInput, PipelineOutput};
use symphony_types::{
    BackendId, BootId, CutDigest, DataType, Epoch, ModelId, NodeId, OperationId, RequestValue, Signature, SubclusterId,
    TensorSpec,
};

/// The labels of all commands; those of operators stand for their operations.
pub const LABELS: [&str; 32] = [
    "register_node",
    "node_down",
    "register_backend",
    "backend_down",
    "register_frontend",
    "report_model",
    "leave",
    "report_drained",
    "begin_handover",
    "complete_handover",
    "cancel_handover",
    "cede_lead",
    "load_model",
    "unload_model",
    "set_traffic",
    "change_model",
    "set_duty",
    "change_replicas",
    "propose_plan",
    "review_plan",
    "finish_move",
    "cancel_move",
    "remove_frontend",
    "forget_frontend",
    "raise_level",
    "set_policy",
    "know_policies",
    "policy_failed",
    "report_cuts",
    "load_pipeline",
    "unload_pipeline",
    "set_split",
];

/// The label of a command, which must be one of [`LABELS`]: the compiler leads here when a command or an operation is
/// added.
pub fn label(command: &Command) -> &'static str {
    let label = match command {
        Command::RegisterNode(_)
        | Command::NodeDown { .. }
        | Command::RegisterBackend(_)
        | Command::BackendDown { .. }
        | Command::RegisterFrontend(_)
        | Command::ReportModel { .. }
        | Command::Leave { .. }
        | Command::ReportDrained { .. }
        | Command::BeginHandover { .. }
        | Command::CompleteHandover { .. }
        | Command::CancelHandover { .. }
        | Command::CedeLead { .. }
        | Command::ProposePlan(_)
        | Command::FinishMove { .. }
        | Command::CancelMove { .. }
        | Command::ForgetFrontend { .. }
        | Command::KnowPolicies { .. }
        | Command::PolicyFailed { .. }
        | Command::ReportCuts { .. }
        | Command::SetSplit { .. } => command.label(),
        Command::Operate(operation) => match operation.action {
            Action::LoadModel(_)
            | Action::UnloadModel { .. }
            | Action::SetTraffic { .. }
            | Action::ChangeModel { .. }
            | Action::SetDuty { .. }
            | Action::ChangeReplicas { .. }
            | Action::ProposePlan(_)
            | Action::ReviewPlan { .. }
            | Action::RemoveFrontend { .. }
            | Action::RaiseLevel { .. }
            | Action::SetPolicy { .. }
            | Action::LoadPipeline(_)
            | Action::UnloadPipeline { .. } => command.label(),
        },
    };
    assert!(LABELS.contains(&label), "{label} is not in LABELS");
    label
}

pub fn node(node: u64, boot: u64) -> Command {
    Command::RegisterNode(NodeRegistration {
        node: NodeId::new(node),
        boot: BootId::new(boot),
        control_addr: format!("node-{node}:7000"),
        dispatch_addr: format!("node-{node}:7001"),
        beat_addr: format!("node-{node}:7004"),
        disk: node + 1,
        avoid: None,
    })
}

pub fn node_down(node: u64, boot: u64) -> Command {
    Command::NodeDown { node: NodeId::new(node), boot: BootId::new(boot), avoid: None }
}

pub fn backend(name: &str, boot: u64, subcluster: &str, kinds: &[&str]) -> Command {
    let gpus = kinds.iter().map(|kind| GpuOffer { kind: (*kind).into(), memory_bytes: 1000 });
    Command::RegisterBackend(BackendRegistration {
        name: name.into(),
        boot: BootId::new(boot),
        exec_addr: format!("{name}:7002"),
        subcluster: subcluster.into(),
        executor: "emulated".into(),
        gpus: gpus.collect(),
        avoid: None,
    })
}

pub fn backend_down(backend: u32, boot: u64) -> Command {
    Command::BackendDown { backend: BackendId::new(backend), boot: BootId::new(boot) }
}

pub fn frontend(name: &str, boot: u64) -> Command {
    let (data_addr, console_addr) = (format!("{name}:7003"), format!("{name}:7005"));
    let (name, boot) = (name.to_owned(), BootId::new(boot));
    Command::RegisterFrontend(FrontendRegistration { name, boot, data_addr, console_addr })
}

pub fn spec(name: &str, subcluster: &str, kinds: &[&str]) -> ModelSpec {
    let profile = KindProfile { latency_ns: vec![1_000, 2_000], static_memory_bytes: 300, dynamic_memory_bytes: 100 };
    let tensor = TensorSpec { name: "x".into(), data_type: DataType::Fp32, item_shape: vec![8, 8] };
    ModelSpec {
        name: name.into(),
        subcluster: subcluster.into(),
        slo_ns: 50_000_000,
        source: ModelSource::Emulated,
        signature: Signature { inputs: vec![tensor.clone()], outputs: vec![tensor] },
        transforms: Default::default(),
        profiles: kinds.iter().map(|kind| ((*kind).to_owned(), profile.clone())).collect(),
        // By name: the committed files of format.rs hold it.
        policy: "symphony".parse().unwrap(),
        value: RequestValue::ONE,
    }
}

pub fn load(name: &str, subcluster: &str, kinds: &[&str]) -> Command {
    operate(Action::LoadModel(spec(name, subcluster, kinds)))
}

pub fn unload(name: &str) -> Command {
    operate(Action::UnloadModel { name: name.into() })
}

/// A pipeline whose stages ask these models one after the other: `in` to `t1` to `t2`, and so on.
pub fn chain(name: &str, version: u64, models: &[&str]) -> PipelineDeclaration {
    let tensor = |at: usize| if at == 0 { "in".to_owned() } else { format!("t{at}") };
    let stage = |(at, model): (usize, &&str)| DeclaredStage {
        name: format!("stage-{at}"),
        model: (*model).to_owned(),
        inputs: [("x".to_owned(), tensor(at))].into(),
        outputs: [("x".to_owned(), tensor(at + 1))].into(),
    };
    let (data_type, item_shape) = (DataType::Fp32, vec![8, 8]);
    let out = TensorSpec { name: tensor(models.len()), data_type, item_shape: item_shape.clone() };
    PipelineDeclaration {
        name: name.into(),
        version,
        slo_ns: 100_000_000,
        value: RequestValue::ONE,
        partial: false,
        items_max: 8,
        inputs: vec![PipelineInput { name: tensor(0), data: InputData::Tensor { data_type, item_shape } }],
        outputs: vec![PipelineOutput { tensor: out, any_rows: false }],
        stages: models.iter().enumerate().map(stage).collect(),
        edges: vec![],
    }
}

pub fn pipeline(name: &str, version: u64, models: &[&str]) -> Command {
    operate(Action::LoadPipeline(chain(name, version, models)))
}

/// A split of the traffic of a model, by weights.
pub fn traffic(model: &str, weights: &[(u64, u32)]) -> Command {
    let traffic = Traffic { weights: weights.iter().copied().collect(), shadow: None };
    operate(Action::SetTraffic { model: model.into(), traffic })
}

pub fn model_move(model: u32, from: u32, to: u32) -> WantedMove {
    let (from, to) = (SubclusterId::new(from), SubclusterId::new(to));
    WantedMove { what: Moved::Model(ModelId::new(model)), from, to }
}

pub fn backend_move(backend: u32, from: u32, to: u32) -> WantedMove {
    let (from, to) = (SubclusterId::new(from), SubclusterId::new(to));
    WantedMove { what: Moved::Backend(BackendId::new(backend)), from, to }
}

/// A plan that runs at once.
pub fn plan(epoch: u64, moves: &[WantedMove]) -> Command {
    let (cause, summary) = ("rates changed".into(), "imbalance 0.4 to 0.1".into());
    Command::ProposePlan(PlanProposal {
        epoch: Epoch::new(epoch),
        cause,
        summary,
        moves: moves.to_vec(),
        adopt: true,
        ..PlanProposal::default()
    })
}

/// An operation with an id that was never used before.
pub fn operate(action: Action) -> Command {
    static LAST: AtomicU64 = AtomicU64::new(1 << 32);
    Command::Operate(operation(LAST.fetch_add(1, Ordering::Relaxed), action))
}

/// An operation with this id.
pub fn operation(id: u64, action: Action) -> Operation {
    let id = OperationId::new(id.into());
    Operation { id, actor: "operator/ann".into(), at_unix_ms: 1_700_000_000_000, avoid: None, action }
}

pub fn report(model: u32, backend: u32, boot: u64, state: HolderState) -> Command {
    let (model, backend, boot) = (ModelId::new(model), BackendId::new(backend), BootId::new(boot));
    Command::ReportModel { model, backend, boot, state, load_ns: 0 }
}

/// A backend reports where a model can be cut.
pub fn cuts(model: u32, backend: u32, boot: u64, cuts: &[u128]) -> Command {
    let (model, backend, boot) = (ModelId::new(model), BackendId::new(backend), BootId::new(boot));
    Command::ReportCuts { model, backend, boot, cuts: cuts.iter().copied().map(CutDigest::new).collect() }
}

/// A state and the index of its log.
#[derive(Default)]
pub struct Scene {
    pub state: ClusterState,
    pub index: u64,
}

impl Scene {
    /// Scheduler replicas 1, 2 and 3, each in the boot of its own number times ten.
    pub fn with_three_nodes() -> Self {
        let mut scene = Self::default();
        for id in 1..=3 {
            scene.done(&node(id, id * 10));
        }
        scene
    }

    /// Applies a command at the next index.
    pub fn apply(&mut self, command: &Command) -> (Outcome, Vec<Effect>) {
        self.index += 1;
        let applied = self.state.apply(self.index, command);
        (applied.outcome, applied.effects)
    }

    /// Applies a command that must not be refused; returns what it changed.
    #[track_caller]
    pub fn done(&mut self, command: &Command) -> Vec<Effect> {
        let (outcome, effects) = self.apply(command);
        assert!(outcome.is_ok(), "{command:?} refused: {outcome:?}");
        effects
    }

    /// Applies a command that must be refused: tells why, after making sure that nothing but the index changed.
    #[track_caller]
    pub fn refused(&mut self, command: &Command) -> symphony_cluster_state::Refusal {
        let before = self.state.clone();
        let (outcome, effects) = self.apply(command);
        assert_eq!(effects, [], "a refused command changes nothing");
        assert_eq!(before.epoch(), self.state.epoch());
        assert_eq!(before.nodes(), self.state.nodes());
        assert_eq!(before.subclusters(), self.state.subclusters());
        assert_eq!(before.backends(), self.state.backends());
        assert_eq!(before.models(), self.state.models());
        assert_eq!(before.events(), self.state.events());
        outcome.expect_err("the command must be refused")
    }

    /// Leader, token and standbys of the sub-cluster of that name.
    pub fn leadership(&self, name: &str) -> (Option<u64>, u64, Vec<u64>) {
        let (_, subcluster) = self.state.subcluster_named(name).unwrap();
        let standbys = subcluster.standbys.iter().map(|n| n.get()).collect();
        (subcluster.leader.map(|l| l.node.get()), subcluster.token.get(), standbys)
    }
}
