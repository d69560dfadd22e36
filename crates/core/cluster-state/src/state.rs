//! The state. Only commands change it.

use std::collections::{BTreeMap, BTreeSet};

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{BackendId, BootId, Duty, Epoch, FrontendId, GpuId, Level, ModelId, NodeId, SubclusterId, Token};

use crate::epoch_plan::{BackendMove, EpochPlan, ModelMove};
use crate::loaded_pipeline::LoadedPipeline;
use crate::reply::Outcome;
use crate::subcluster_policy::SubclusterPolicy;
use crate::traffic_split::Traffic;
use crate::trunk::Trunk;
use symphony_replicated::ModelSpec;
use symphony_replicated::operation_book::KeptOperation;

/// The state on which the replicas of a cluster agree.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterState {
    pub(crate) applied_index: u64,
    pub(crate) epoch: Epoch,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    /// Ids of removed replicas, which are never reused.
    pub(crate) removed_nodes: BTreeSet<NodeId>,
    pub(crate) subclusters: BTreeMap<SubclusterId, Subcluster>,
    pub(crate) backends: BTreeMap<BackendId, Backend>,
    pub(crate) frontends: BTreeMap<FrontendId, Frontend>,
    pub(crate) models: BTreeMap<ModelId, Model>,
    /// How requests that name no version are split, by model or pipeline; of versions that are loaded.
    pub(crate) traffic: BTreeMap<String, Traffic>,
    pub(crate) events: Vec<Event>,
    /// The last operations in log order: the answers to repetitions, and the record of operators' actions.
    pub(crate) operations: Vec<KeptOperation<Outcome>>,
    /// The last plans of the epoch loop, in log order.
    pub(crate) plans: Vec<EpochPlan>,
    pub(crate) last: LastIds,
    /// What all processes of the cluster read, and therefore write.
    pub(crate) level: Level,
    /// The policies that decide for whole sub-clusters; without one, each model has its own.
    pub(crate) policies: BTreeMap<SubclusterId, SubclusterPolicy>,
    /// The policies that the programs of replicas add, by name.
    pub(crate) policies_known: BTreeMap<NodeId, Vec<String>>,
    /// Where loaded models can be cut, and which of them share a trunk.
    pub(crate) trunks: BTreeMap<ModelId, Trunk>,
    /// Pipelines, by the names of their versions.
    pub(crate) pipelines: BTreeMap<String, LoadedPipeline>,
}

/// The state as an older version has it, and how what is missing there begins.
macro_rules! state_of_version {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* } and { $($new:ident: $begins:expr,)* }) => {
        $(#[$doc])*
        #[derive(Archive, Serialize, Deserialize)]
        pub(crate) struct $name {
            $($field: $type,)*
        }

        impl From<ClusterState> for $name {
            fn from(state: ClusterState) -> Self {
                Self { $($field: state.$field,)* }
            }
        }

        impl From<$name> for ClusterState {
            fn from(state: $name) -> Self {
                Self { $($field: state.$field,)* $($new: $begins,)* }
            }
        }
    };
}

state_of_version! {
    /// The state as version 9 has it, which knows no levels: what was written in it is of a cluster at the first one.
    StateOfVersion9 {
        applied_index: u64,
        epoch: Epoch,
        nodes: BTreeMap<NodeId, Node>,
        removed_nodes: BTreeSet<NodeId>,
        subclusters: BTreeMap<SubclusterId, Subcluster>,
        backends: BTreeMap<BackendId, Backend>,
        frontends: BTreeMap<FrontendId, Frontend>,
        models: BTreeMap<ModelId, Model>,
        traffic: BTreeMap<String, Traffic>,
        events: Vec<Event>,
        operations: Vec<KeptOperation<Outcome>>,
        plans: Vec<EpochPlan>,
        last: LastIds,
    } and {
        level: Level::new(1),
        policies: BTreeMap::new(),
        policies_known: BTreeMap::new(),
        trunks: BTreeMap::new(),
        pipelines: BTreeMap::new(),
    }
}

state_of_version! {
    /// The state as version 10 has it, which knows no policies of sub-clusters, no trunks and no pipelines.
    StateOfVersion10 {
        applied_index: u64,
        epoch: Epoch,
        nodes: BTreeMap<NodeId, Node>,
        removed_nodes: BTreeSet<NodeId>,
        subclusters: BTreeMap<SubclusterId, Subcluster>,
        backends: BTreeMap<BackendId, Backend>,
        frontends: BTreeMap<FrontendId, Frontend>,
        models: BTreeMap<ModelId, Model>,
        traffic: BTreeMap<String, Traffic>,
        events: Vec<Event>,
        operations: Vec<KeptOperation<Outcome>>,
        plans: Vec<EpochPlan>,
        last: LastIds,
        level: Level,
    } and {
        policies: BTreeMap::new(),
        policies_known: BTreeMap::new(),
        trunks: BTreeMap::new(),
        pipelines: BTreeMap::new(),
    }
}

/// The largest id assigned so far, per type: no id is reused, not even after removal.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastIds {
    pub(crate) subcluster: u32,
    pub(crate) backend: u32,
    pub(crate) gpu: u32,
    pub(crate) frontend: u32,
    pub(crate) model: u32,
}

/// A scheduler replica.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The boot that registered last.
    pub boot: BootId,
    /// The previous boot, whose late messages are refused.
    pub previous_boot: Option<BootId>,
    /// Whether it is up, that is, not declared down.
    pub up: bool,
    /// `host:port` of its control surface.
    pub control_addr: String,
    /// `host:port` where it takes requests.
    pub dispatch_addr: String,
    /// `host:port` where it takes heartbeats while it leads the control group.
    pub beat_addr: String,
    /// Number given to its disk when the disk was empty: a replica that returns with another disk has forgotten its
    /// votes.
    pub disk: u64,
    /// The duty set by operators; kept over restarts.
    pub duty: Duty,
    /// Whether this boot has announced its stop.
    pub leaving: bool,
}

/// GPUs that all hold the same models, and their leader.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Subcluster {
    /// Its name, given by the first backend that asked for it.
    pub name: String,
    /// Its leader; `None` while every replica is down.
    pub leader: Option<Leader>,
    /// Log index of the last change of leader.
    pub token: Token,
    /// The standbys: other living replicas that may lead, the least loaded first.
    pub standbys: Vec<NodeId>,
    /// The successor, if a planned hand-over is under way.
    pub successor: Option<Successor>,
}

/// A replica that prepares to lead a sub-cluster while another one still leads it.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Successor {
    /// The replica.
    pub node: NodeId,
    /// The boot that prepares: after a restart the hand-over is over.
    pub boot: BootId,
    /// Log index at which the hand-over began; identifies it.
    pub since: u64,
}

/// A replica in one boot: after a restart it does not lead what it led before.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The replica.
    pub node: NodeId,
    /// The boot that was made leader.
    pub boot: BootId,
}

/// A process with GPUs, of one sub-cluster.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its name, from its configuration; stable over restarts.
    pub name: String,
    /// The boot that registered last.
    pub boot: BootId,
    /// The previous boot, whose late messages are refused.
    pub previous_boot: Option<BootId>,
    /// Log index at which it was declared down; `None` while it is up.
    pub down_since: Option<u64>,
    /// `host:port` of its execute link.
    pub exec_addr: String,
    /// The name of the sub-cluster that it asked for. It is in that one unless a plan moved it.
    pub asked_subcluster: String,
    /// Its sub-cluster.
    pub subcluster: SubclusterId,
    /// Its move to another one, if any.
    pub moving: Option<BackendMove>,
    /// Kind of executor.
    pub executor: String,
    /// Its GPUs, in the order of its offer.
    pub gpus: Vec<Gpu>,
    /// Whether its GPUs may get plans.
    pub standing: Standing,
    /// Its loading speed in bytes per second, by recent reports over all its boots; 0 if not measured.
    pub load_bytes_per_s: u64,
}

/// A GPU as its backend offered it.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its id, kept over restarts for a GPU of the same kind at the same position.
    pub id: GpuId,
    /// Its kind, which names a profile of each model.
    pub kind: String,
    /// Its memory in bytes; 0 if there is no limit.
    pub memory_bytes: u64,
    /// Log index of its binding to the sub-cluster.
    pub binding: Token,
}

/// A process that takes requests from clients.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    /// Its name, from its configuration; stable over restarts.
    pub name: String,
    /// The boot that registered last.
    pub boot: BootId,
    /// The previous boot, whose late messages are refused.
    pub previous_boot: Option<BootId>,
    /// `host:port` of its data link.
    pub data_addr: String,
    /// `host:port` of its metrics, console and ledger.
    pub console_addr: String,
    /// Whether it may take requests.
    pub standing: Standing,
}

/// The duty of a backend or frontend, and its progress in draining.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The duty set by operators; kept over restarts.
    pub duty: Duty,
    /// Whether this boot has announced its stop.
    pub leaving: bool,
    /// Whether it has reported that all its work is finished.
    pub drained: bool,
}

impl Standing {
    /// Its effective duty.
    #[must_use]
    pub const fn duty(&self) -> Duty {
        if self.leaving { Duty::Draining } else { self.duty }
    }

    /// The standing after a restart.
    pub(crate) const fn after_restart(self) -> Self {
        Self { duty: self.duty, leaving: false, drained: false }
    }
}

/// A model of the cluster.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The requested specification, with its sub-cluster's name filled in. It is in that one unless a plan moved it.
    pub spec: ModelSpec,
    /// The sub-cluster that new requests go to.
    pub subcluster: SubclusterId,
    /// Its move to another one, if any.
    pub moving: Option<ModelMove>,
    /// The first epoch that contains it.
    pub epoch: Epoch,
    /// Load reports by the sub-cluster's backends.
    pub holders: BTreeMap<BackendId, Holder>,
}

/// A backend's load report on a model.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The backend's boot id.
    pub boot: BootId,
    /// The result.
    pub state: HolderState,
}

/// The result of loading a model.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum HolderState {
    /// Loaded.
    Ready,
    /// Failed, with the error.
    Failed(String),
}

/// A change, for display.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Log index of the command.
    pub index: u64,
    /// When the command was proposed ([`crate::LogEntry::at_unix_ms`]); 0 if unknown.
    pub at_unix_ms: u64,
    /// A sentence.
    pub what: String,
}

impl Node {
    /// Its effective duty.
    #[must_use]
    pub const fn duty(&self) -> Duty {
        if self.leaving { Duty::Draining } else { self.duty }
    }

    /// Whether it may lead more sub-clusters.
    #[must_use]
    pub const fn takes_leads(&self) -> bool {
        self.up && self.duty().takes_work()
    }
}

impl Backend {
    /// Whether it is up, that is, not declared down.
    #[must_use]
    pub const fn up(&self) -> bool {
        self.down_since.is_none()
    }

    /// Its effective duty.
    #[must_use]
    pub const fn duty(&self) -> Duty {
        match self.moving {
            Some(BackendMove { retiring: Some(_), .. }) => Duty::Draining,
            _ => self.standing.duty(),
        }
    }

    /// The sub-clusters whose models it holds: its own and, during a move that loads beforehand, the new one.
    pub(crate) fn homes(&self) -> Vec<Vec<SubclusterId>> {
        match self.moving {
            None => vec![vec![self.subcluster]],
            Some(moving) if moving.preloads => vec![vec![self.subcluster, moving.to]],
            Some(moving) => vec![vec![self.subcluster], vec![moving.to]],
        }
    }

    /// Whether the sub-cluster is one of its [`homes`](Self::homes).
    pub(crate) fn is_at_home_in(&self, subcluster: SubclusterId) -> bool {
        self.subcluster == subcluster || self.moving.is_some_and(|moving| moving.to == subcluster)
    }
}

impl Model {
    /// Whether the sub-cluster serves requests for it: new ones, or those that arrived before the model moved away.
    #[must_use]
    pub fn is_served_by(&self, subcluster: SubclusterId) -> bool {
        self.subcluster == subcluster
            || self.moving.is_some_and(|moving| moving.switched.is_some() && moving.from == subcluster)
    }

    /// Whether the backends of the sub-cluster hold it or have to load it.
    #[must_use]
    pub fn is_held_by(&self, subcluster: SubclusterId) -> bool {
        self.is_served_by(subcluster) || self.moving.is_some_and(|moving| moving.to == subcluster)
    }

    /// The load report of one boot of a backend.
    pub(crate) fn word_of(&self, backend: BackendId, boot: BootId) -> Option<&HolderState> {
        self.holders.get(&backend).filter(|holder| holder.boot == boot).map(|holder| &holder.state)
    }
}

impl ClusterState {
    /// Log index of the last command applied.
    #[must_use]
    pub const fn applied_index(&self) -> u64 {
        self.applied_index
    }

    /// Version of the plan.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What all processes of the cluster read, and therefore write.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// A state without a history begins at the level of its first entry: the process that led the group first knew
    /// it. Afterwards only [`Action::RaiseLevel`](crate::Action::RaiseLevel) changes it.
    pub fn found_at(&mut self, level: Level) {
        if self.applied_index == 0 {
            self.level = level;
        }
    }

    /// Scheduler replicas, by id, like all lists here.
    #[must_use]
    pub const fn nodes(&self) -> &BTreeMap<NodeId, Node> {
        &self.nodes
    }

    /// Ids of the removed replicas.
    #[must_use]
    pub const fn removed_nodes(&self) -> &BTreeSet<NodeId> {
        &self.removed_nodes
    }

    /// Sub-clusters.
    #[must_use]
    pub const fn subclusters(&self) -> &BTreeMap<SubclusterId, Subcluster> {
        &self.subclusters
    }

    /// Backends, up and dead.
    #[must_use]
    pub const fn backends(&self) -> &BTreeMap<BackendId, Backend> {
        &self.backends
    }

    /// Frontends, with those that have left and are not forgotten yet.
    #[must_use]
    pub const fn frontends(&self) -> &BTreeMap<FrontendId, Frontend> {
        &self.frontends
    }

    /// Models of the cluster.
    #[must_use]
    pub const fn models(&self) -> &BTreeMap<ModelId, Model> {
        &self.models
    }

    /// The latest events, newest last.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The last operations, newest last: at most [`OPERATIONS_KEPT`](crate::OPERATIONS_KEPT).
    #[must_use]
    pub fn operations(&self) -> &[KeptOperation<Outcome>] {
        &self.operations
    }

    /// The last plans, newest last: at most [`PLANS_KEPT`](crate::PLANS_KEPT).
    #[must_use]
    pub fn plans(&self) -> &[EpochPlan] {
        &self.plans
    }

    /// The sub-cluster of that name.
    #[must_use]
    pub fn subcluster_named(&self, name: &str) -> Option<(SubclusterId, &Subcluster)> {
        self.subclusters.iter().find(|(_, s)| s.name == name).map(|(&id, s)| (id, s))
    }

    /// Finds a model by the name under which it was loaded.
    #[must_use]
    pub fn model_named(&self, name: &str) -> Option<(ModelId, &Model)> {
        self.models.iter().find(|(_, m)| m.spec.name == name).map(|(&id, m)| (id, m))
    }

    /// The GPUs bound to a sub-cluster, including those of dead backends.
    pub fn gpus_of(&self, subcluster: SubclusterId) -> impl Iterator<Item = &Gpu> {
        self.backends.values().filter(move |b| b.subcluster == subcluster).flat_map(|b| &b.gpus)
    }

    /// The models whose new requests go to a sub-cluster.
    pub fn models_of(&self, subcluster: SubclusterId) -> impl Iterator<Item = &Model> {
        self.models.values().filter(move |m| m.subcluster == subcluster)
    }
}
