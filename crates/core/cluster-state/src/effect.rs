//! Effects: what a command changed.

use std::fmt;

use symphony_types::{
    BackendId, BootId, CutDigest, Duty, FrontendId, GpuId, Level, Member, ModelId, Nanos, NodeId, SubclusterId, Token,
};

use crate::epoch_plan::WantedMove;
use crate::state::HolderState;
use crate::subcluster_policy::PolicyFailure;
use crate::traffic_split::Traffic;

/// Which moves an effect can advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MoveTrigger {
    /// Moves under way, and backends that wait because no other backend holds the models that they serve.
    Ready,
    /// The moves of [`Ready`](Self::Ready), and those that wait for memory or for their turn.
    Room,
}

/// One change made by a command, in order. The `Display` of a notable effect is the sentence that `symphony get events`
/// shows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Fields are ids and names of what the variant speaks of.
pub enum Effect {
    /// A replica is up.
    NodeUp { node: NodeId, boot: BootId },
    /// A replica's boot is dead.
    NodeDown { node: NodeId, boot: BootId },
    /// A sub-cluster was created.
    SubclusterCreated { subcluster: SubclusterId, name: String },
    /// A sub-cluster has another leader, the same replica in a new boot, or none.
    LeaderChanged { subcluster: SubclusterId, name: String, leader: Option<NodeId>, token: Token },
    /// A backend has registered, or is back after it was declared down.
    BackendUp { backend: BackendId, name: String, boot: BootId },
    /// A backend's boot is dead.
    BackendDown { backend: BackendId, name: String, boot: BootId },
    /// A dead backend was forgotten because its slot was needed.
    BackendForgotten { backend: BackendId, name: String },
    /// A GPU was bound to a sub-cluster under a new token.
    GpuBound { gpu: GpuId, subcluster: SubclusterId, token: Token },
    /// A GPU was removed together with the boot that offered it.
    GpuReleased { gpu: GpuId },
    /// A frontend was forgotten: by an operator's command, or because its slot was needed and it had left or was
    /// silent.
    FrontendForgotten { frontend: FrontendId, name: String },
    /// A frontend has registered in a new boot.
    FrontendUp { frontend: FrontendId, name: String, boot: BootId },
    /// A model was added to a sub-cluster.
    ModelLoaded { model: ModelId, name: String, subcluster: SubclusterId },
    /// A model is served otherwise; its specification says how.
    ModelChanged { model: ModelId, name: String, how: String },
    /// A model was removed.
    ModelUnloaded { model: ModelId, name: String },
    /// The requests for a model that name no version are split differently.
    TrafficSet { model: String, traffic: Traffic },
    /// The same of a pipeline.
    PipelineTrafficSet { pipeline: String, traffic: Traffic },
    /// A backend reported the result of loading.
    ModelReported { model: ModelId, name: String, backend: BackendId, state: HolderState },
    /// The duty of a process changed.
    DutyChanged { member: Member, duty: Duty },
    /// A process has finished all its work.
    Drained { member: Member },
    /// A replica prepares to lead.
    HandoverBegun { subcluster: SubclusterId, name: String, from: NodeId, to: NodeId },
    /// A replica no longer prepares to lead.
    HandoverCancelled { subcluster: SubclusterId, name: String, to: NodeId },
    /// A leader can no longer decide.
    LeadCeded { subcluster: SubclusterId, name: String, node: NodeId },
    /// A replica was removed for good.
    NodeRemoved { node: NodeId },
    /// A plan was recorded; it runs once it is adopted.
    PlanProposed { plan: u64, cause: String, moves: u64 },
    /// A plan runs: its moves may begin.
    PlanAdopted { plan: u64 },
    /// All moves of a plan have ended.
    PlanDone { plan: u64 },
    /// A plan will not run.
    PlanDropped { plan: u64 },
    /// The move of a model or backend to another sub-cluster began.
    MoveBegun { wanted: WantedMove },
    /// New requests for a model go to another sub-cluster.
    ModelSwitched { model: ModelId, name: String, from: SubclusterId, to: SubclusterId },
    /// A backend was bound to another sub-cluster.
    BackendMoved { backend: BackendId, name: String, to: SubclusterId },
    /// A move has completed, and what was left in the old sub-cluster is gone.
    MoveDone { wanted: WantedMove },
    /// A move was cancelled; the model or backend stays where it is.
    MoveGivenUp { wanted: WantedMove, reason: String },
    /// Everything is written by a higher level from here on.
    LevelRaised { level: Level },
    /// The program of a replica adds these policies.
    PoliciesKnown { node: NodeId, names: String },
    /// A sub-cluster has another policy, or none.
    PolicySet { subcluster: SubclusterId, name: String, policy: String },
    /// The policy of a sub-cluster has ended a lead by its fault, and decides nothing more.
    PolicyFailed { subcluster: SubclusterId, name: String, policy: String, node: NodeId, why: PolicyFailure },
    /// A backend reported where a model can be cut.
    CutsReported { model: ModelId, name: String, backend: BackendId, cuts: u64 },
    /// A model shares its trunk with others of its sub-cluster.
    FamilyJoined { model: ModelId, name: String, trunk: CutDigest },
    /// A model does not share that trunk any more.
    FamilyLeft { model: ModelId, name: String, trunk: CutDigest },
    /// A pipeline was added, or another version of one.
    PipelineLoaded { name: String, version: u64 },
    /// A version of a pipeline was removed; `name` has it.
    PipelineUnloaded { name: String },
    /// The budget of a version of a pipeline is split differently; `name` has it.
    SplitSet { name: String, budgets_ns: Vec<u64> },
}

impl Effect {
    /// Whether the effect changes the assignment: models → sub-clusters, GPUs → sub-clusters, leaders, pipelines and
    /// their splits. Such a command starts an epoch.
    #[must_use]
    pub const fn changes_assignment(&self) -> bool {
        matches!(
            self,
            Self::LeaderChanged { .. }
                | Self::GpuBound { .. }
                | Self::GpuReleased { .. }
                | Self::ModelLoaded { .. }
                | Self::ModelUnloaded { .. }
                | Self::ModelSwitched { .. }
                | Self::BackendMoved { .. }
                | Self::PipelineLoaded { .. }
                | Self::PipelineUnloaded { .. }
                | Self::SplitSet { .. }
        )
    }

    /// Which moves of plans the effect can advance, if any.
    pub(crate) const fn move_trigger(&self) -> Option<MoveTrigger> {
        match self {
            Self::ModelReported { .. } | Self::BackendUp { .. } | Self::Drained { .. } => Some(MoveTrigger::Ready),
            Self::BackendDown { .. }
            | Self::BackendForgotten { .. }
            | Self::GpuBound { .. }
            | Self::GpuReleased { .. }
            | Self::ModelLoaded { .. }
            | Self::ModelUnloaded { .. }
            | Self::DutyChanged { .. }
            | Self::PlanAdopted { .. }
            | Self::MoveBegun { .. }
            | Self::ModelSwitched { .. }
            | Self::BackendMoved { .. }
            | Self::MoveDone { .. }
            | Self::MoveGivenUp { .. } => Some(MoveTrigger::Room),
            Self::NodeUp { .. }
            | Self::NodeDown { .. }
            | Self::SubclusterCreated { .. }
            | Self::LeaderChanged { .. }
            | Self::TrafficSet { .. }
            | Self::PipelineTrafficSet { .. }
            | Self::ModelChanged { .. }
            | Self::FrontendForgotten { .. }
            | Self::FrontendUp { .. }
            | Self::HandoverBegun { .. }
            | Self::HandoverCancelled { .. }
            | Self::LeadCeded { .. }
            | Self::NodeRemoved { .. }
            | Self::PlanProposed { .. }
            | Self::PlanDone { .. }
            | Self::PlanDropped { .. }
            | Self::LevelRaised { .. }
            | Self::PoliciesKnown { .. }
            | Self::PolicySet { .. }
            | Self::PolicyFailed { .. }
            | Self::CutsReported { .. }
            | Self::FamilyJoined { .. }
            | Self::FamilyLeft { .. }
            | Self::PipelineLoaded { .. }
            | Self::PipelineUnloaded { .. }
            | Self::SplitSet { .. } => None,
        }
    }

    /// The model that may now share with others than before, if the effect is about one.
    pub(crate) const fn may_change_family_of(&self) -> Option<ModelId> {
        match self {
            Self::CutsReported { model, .. }
            | Self::ModelUnloaded { model, .. }
            | Self::ModelSwitched { model, .. } => Some(*model),
            _ => None,
        }
    }

    /// Whether the effect is an event for operators; a line per GPU, or per model and backend, would evict all others
    /// from the ring.
    pub(crate) const fn is_notable(&self) -> bool {
        !matches!(self, Self::GpuBound { .. } | Self::GpuReleased { .. } | Self::CutsReported { .. })
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeUp { node, .. } => write!(f, "scheduler {node} is up"),
            Self::NodeDown { node, .. } => write!(f, "scheduler {node} is down"),
            Self::SubclusterCreated { name, .. } => write!(f, "sub-cluster {name} created"),
            Self::LeaderChanged { name, leader: Some(node), token, .. } => {
                write!(f, "sub-cluster {name} is led by {node} with token {token}")
            }
            Self::LeaderChanged { name, leader: None, .. } => {
                write!(f, "sub-cluster {name} has no leader: every scheduler is down")
            }
            Self::BackendUp { backend, name, .. } => write!(f, "backend {name} ({backend}) is up"),
            Self::BackendDown { backend, name, .. } => write!(f, "backend {name} ({backend}) is down"),
            Self::BackendForgotten { backend, name } => write!(f, "dead backend {name} ({backend}) forgotten"),
            Self::FrontendForgotten { frontend, name } => {
                write!(f, "frontend {name} ({frontend}) forgotten")
            }
            Self::GpuBound { gpu, subcluster, token } => {
                write!(f, "GPU {gpu} belongs to {subcluster} with token {token}")
            }
            Self::GpuReleased { gpu } => write!(f, "GPU {gpu} is gone"),
            Self::FrontendUp { frontend, name, .. } => write!(f, "frontend {name} ({frontend}) is up"),
            Self::ModelLoaded { model, name, subcluster } => {
                write!(f, "model {name} ({model}) to be served by {subcluster}")
            }
            Self::ModelChanged { model, name, how } => write!(f, "model {name} ({model}) changed: {how}"),
            Self::TrafficSet { model, traffic } => write!(f, "traffic of model {model}: {traffic}"),
            Self::PipelineTrafficSet { pipeline, traffic } => write!(f, "traffic of pipeline {pipeline}: {traffic}"),
            Self::ModelUnloaded { model, name } => write!(f, "model {name} ({model}) unloaded"),
            Self::ModelReported { name, backend, state: HolderState::Ready, .. } => {
                write!(f, "model {name} ready on {backend}")
            }
            Self::ModelReported { name, backend, state: HolderState::Failed(error), .. } => {
                write!(f, "model {name} failed on {backend}: {error}")
            }
            Self::DutyChanged { member, duty } => write!(f, "{member} is {duty} now"),
            Self::Drained { member } => write!(f, "{member} is drained"),
            Self::HandoverBegun { name, from, to, .. } => {
                write!(f, "sub-cluster {name} is to be handed over from {from} to {to}")
            }
            Self::HandoverCancelled { name, to, .. } => {
                write!(f, "sub-cluster {name} is not handed over to {to}")
            }
            Self::LeadCeded { name, node, .. } => write!(f, "{node} cannot decide for sub-cluster {name} any more"),
            Self::NodeRemoved { node } => write!(f, "scheduler {node} is removed"),
            Self::PlanProposed { plan, cause, moves } => write!(f, "plan {plan} of {moves} moves is proposed: {cause}"),
            Self::PlanAdopted { plan } => write!(f, "plan {plan} is adopted"),
            Self::PlanDone { plan } => write!(f, "plan {plan} is done"),
            Self::PlanDropped { plan } => write!(f, "plan {plan} is dropped"),
            Self::MoveBegun { wanted } => write!(f, "{wanted} begins to move"),
            Self::ModelSwitched { model, name, from, to } => {
                write!(f, "model {name} ({model}) is served by {to} instead of {from}")
            }
            Self::BackendMoved { backend, name, to } => write!(f, "backend {name} ({backend}) belongs to {to}"),
            Self::MoveDone { wanted } => write!(f, "{wanted} has moved"),
            Self::MoveGivenUp { wanted, reason } => write!(f, "{wanted} does not move: {reason}"),
            // By number: the words are part of the state, on replicas of every release.
            Self::LevelRaised { level } => {
                let level = level.get();
                write!(f, "the upgrade is finished: the cluster is at level {level}, and older releases cannot join")
            }
            Self::PoliciesKnown { node, names } => write!(f, "scheduler {node} adds the policies {names}"),
            Self::PolicySet { name, policy, .. } => write!(f, "policy {policy} decides for sub-cluster {name}"),
            Self::PolicyFailed { name, policy, node, why, .. } => {
                let why = why.words();
                write!(f, "policy {policy} of sub-cluster {name} {why} on {node}: each model has its own policy now")
            }
            Self::CutsReported { name, backend, cuts, .. } => {
                write!(f, "model {name} has {cuts} cut points by the word of {backend}")
            }
            Self::FamilyJoined { name, trunk, .. } => write!(f, "model {name} shares the trunk {trunk}"),
            Self::FamilyLeft { name, trunk, .. } => write!(f, "model {name} shares the trunk {trunk} no more"),
            Self::PipelineLoaded { name, version } => write!(f, "pipeline {name} at version {version}"),
            Self::PipelineUnloaded { name } => write!(f, "pipeline {name} unloaded"),
            Self::SplitSet { name, budgets_ns } => {
                let budgets: Vec<_> =
                    budgets_ns.iter().map(|&ns| format!("{} ms", Nanos::new(ns).as_millis_f64())).collect();
                write!(f, "budget of pipeline {name}: {}", budgets.join(", "))
            }
        }
    }
}
