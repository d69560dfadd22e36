//! The state itself. Only commands change it.

use std::collections::{BTreeMap, BTreeSet};

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{BackendId, BootId, Duty, Epoch, FrontendId, GpuId, ModelId, NodeId, SubclusterId, Token};

use crate::moves::{BackendMove, ModelMove};
use crate::plan::Plan;
use crate::reply::Outcome;
use symphony_replicated::ModelSpec;
use symphony_replicated::operation_book::KeptOperation;

/// Everything the replicas of a cluster agree on.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterState {
    pub(crate) applied_index: u64,
    pub(crate) epoch: Epoch,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    /// Ids of replicas that were removed: none ever comes back.
    pub(crate) removed_nodes: BTreeSet<NodeId>,
    pub(crate) subclusters: BTreeMap<SubclusterId, Subcluster>,
    pub(crate) backends: BTreeMap<BackendId, Backend>,
    pub(crate) frontends: BTreeMap<FrontendId, Frontend>,
    pub(crate) models: BTreeMap<ModelId, Model>,
    pub(crate) events: Vec<Event>,
    /// What operators asked for last, in the order of the log: what a repetition is answered by, and who did what.
    pub(crate) operations: Vec<KeptOperation<Outcome>>,
    /// The last plans of the epoch loop, in the order of the log.
    pub(crate) plans: Vec<Plan>,
    pub(crate) last: LastIds,
}

/// The largest id given out of each kind: none is ever reused, not even after its bearer is gone.
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
    /// Its life.
    pub boot: BootId,
    /// The life before, whose late messages are refused.
    pub previous_boot: Option<BootId>,
    /// Not declared down.
    pub up: bool,
    /// `host:port` of its control surface.
    pub control_addr: String,
    /// `host:port` where it takes requests.
    pub dispatch_addr: String,
    /// `host:port` where it takes beats while it leads the control group.
    pub beat_addr: String,
    /// Number that its disk was given when it was empty: a replica that comes back over another disk has forgotten its
    /// votes.
    pub disk: u64,
    /// What operators say that it is there for; kept over its lives.
    pub duty: Duty,
    /// This life has been told to end.
    pub leaving: bool,
}

/// GPUs that all hold the same models, and who schedules them.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Subcluster {
    /// Its name.
    pub name: String,
    /// Who leads it; nobody while every replica is down.
    pub leader: Option<Leader>,
    /// Log index of the last change of leader.
    pub token: Token,
    /// The other living replicas that may be given something, the least loaded first.
    pub standbys: Vec<NodeId>,
    /// Who shall lead next, by a planned hand-over that has begun.
    pub successor: Option<Successor>,
}

/// A life of a replica that gets ready to lead a sub-cluster, while another one still leads it.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Successor {
    /// The replica.
    pub node: NodeId,
    /// Its life.
    pub boot: BootId,
    /// Log index at which the hand-over began; names it.
    pub since: u64,
}

/// A life of a replica: a restarted one does not lead what it led before.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The replica.
    pub node: NodeId,
    /// Its life.
    pub boot: BootId,
}

/// A backend.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its name.
    pub name: String,
    /// Its life.
    pub boot: BootId,
    /// The life before, whose late messages are refused.
    pub previous_boot: Option<BootId>,
    /// Log index at which it was declared down; none while it is up.
    pub down_since: Option<u64>,
    /// `host:port` of its execute link.
    pub exec_addr: String,
    /// The sub-cluster it asked for, by name. It is there unless a plan moved it.
    pub asked_subcluster: String,
    /// Its sub-cluster.
    pub subcluster: SubclusterId,
    /// Its way to another one.
    pub moving: Option<BackendMove>,
    /// Kind of executor.
    pub executor: String,
    /// Its GPUs, in the order it brought them.
    pub gpus: Vec<Gpu>,
    /// Whether its GPUs may be given plans.
    pub standing: Standing,
    /// What it loads per second, in bytes, by what it has told of its last loads, over its lives; 0 if nothing was
    /// measured.
    pub load_bytes_per_s: u64,
}

/// A GPU.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its id; a restarted backend's GPU of the same kind at the same place keeps it.
    pub id: GpuId,
    /// Its kind.
    pub kind: String,
    /// Its memory in bytes; 0 if there is no limit to tell.
    pub memory_bytes: u64,
    /// Log index of its binding to the sub-cluster.
    pub binding: Token,
}

/// A frontend.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    /// Its name.
    pub name: String,
    /// Its life.
    pub boot: BootId,
    /// The life before, whose late messages are refused.
    pub previous_boot: Option<BootId>,
    /// `host:port` of its data link.
    pub data_addr: String,
    /// `host:port` of its metrics and console, where its ledger is read.
    pub console_addr: String,
    /// Whether it may take requests.
    pub standing: Standing,
}

/// What a backend or a frontend is there for, and how far it has come with that.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// What operators say; kept over its lives.
    pub duty: Duty,
    /// This life has been told to end.
    pub leaving: bool,
    /// It has nothing left to finish, by its own word.
    pub drained: bool,
}

impl Standing {
    /// What it is there for now.
    #[must_use]
    pub const fn duty(&self) -> Duty {
        if self.leaving { Duty::Draining } else { self.duty }
    }

    /// The same in a new life.
    pub(crate) const fn reborn(self) -> Self {
        Self { duty: self.duty, leaving: false, drained: false }
    }
}

/// A model that is to be served.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// What was asked for, with its sub-cluster's name filled in. It is served there unless a plan moved it.
    pub spec: ModelSpec,
    /// Where new requests for it go.
    pub subcluster: SubclusterId,
    /// Its way to another one.
    pub moving: Option<ModelMove>,
    /// The epoch that held it first.
    pub epoch: Epoch,
    /// What the sub-cluster's backends said about loading it.
    pub replicas: BTreeMap<BackendId, Replica>,
}

/// One backend's word on one model.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The backend's life.
    pub boot: BootId,
    /// How loading went.
    pub state: ReplicaState,
}

/// How loading a model went.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// It can run.
    Ready,
    /// It cannot, and why.
    Failed(String),
}

/// Something that changed, for people.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Log index of the command that changed it.
    pub index: u64,
    /// A sentence.
    pub what: String,
}

impl Node {
    /// What it is there for now.
    #[must_use]
    pub const fn duty(&self) -> Duty {
        if self.leaving { Duty::Draining } else { self.duty }
    }

    /// Whether it may be given a sub-cluster to lead.
    #[must_use]
    pub const fn takes_leads(&self) -> bool {
        self.up && self.duty().takes_work()
    }
}

impl Backend {
    /// Not declared down.
    #[must_use]
    pub const fn up(&self) -> bool {
        self.down_since.is_none()
    }

    /// What it is there for now.
    #[must_use]
    pub const fn duty(&self) -> Duty {
        match self.moving {
            Some(BackendMove { retiring: Some(_), .. }) => Duty::Draining,
            _ => self.standing.duty(),
        }
    }

    /// The sub-clusters whose models it holds: now, and, where that differs, once it has moved.
    pub(crate) fn homes(&self) -> Vec<Vec<SubclusterId>> {
        match self.moving {
            None => vec![vec![self.subcluster]],
            Some(moving) if moving.preloads => vec![vec![self.subcluster, moving.to]],
            Some(moving) => vec![vec![self.subcluster], vec![moving.to]],
        }
    }
}

impl Model {
    /// Whether the sub-cluster serves requests for it: all new ones, or those that came before it moved away.
    #[must_use]
    pub fn is_served_by(&self, subcluster: SubclusterId) -> bool {
        self.subcluster == subcluster
            || self.moving.is_some_and(|moving| moving.switched.is_some() && moving.from == subcluster)
    }

    /// Whether the backends of the sub-cluster hold it, or are to load it.
    #[must_use]
    pub fn is_held_by(&self, subcluster: SubclusterId) -> bool {
        self.is_served_by(subcluster) || self.moving.is_some_and(|moving| moving.to == subcluster)
    }

    /// What a life of a backend said about loading it.
    pub(crate) fn word_of(&self, backend: BackendId, boot: BootId) -> Option<&ReplicaState> {
        self.replicas.get(&backend).filter(|replica| replica.boot == boot).map(|replica| &replica.state)
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

    /// Scheduler replicas, in order of id, as all lists here.
    #[must_use]
    pub const fn nodes(&self) -> &BTreeMap<NodeId, Node> {
        &self.nodes
    }

    /// Ids of the replicas that were removed.
    #[must_use]
    pub const fn removed_nodes(&self) -> &BTreeSet<NodeId> {
        &self.removed_nodes
    }

    /// Sub-clusters.
    #[must_use]
    pub const fn subclusters(&self) -> &BTreeMap<SubclusterId, Subcluster> {
        &self.subclusters
    }

    /// Backends, living and dead.
    #[must_use]
    pub const fn backends(&self) -> &BTreeMap<BackendId, Backend> {
        &self.backends
    }

    /// Frontends.
    #[must_use]
    pub const fn frontends(&self) -> &BTreeMap<FrontendId, Frontend> {
        &self.frontends
    }

    /// Models that are to be served.
    #[must_use]
    pub const fn models(&self) -> &BTreeMap<ModelId, Model> {
        &self.models
    }

    /// The latest events, newest last.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// What operators asked for last, newest last: at most [`OPERATIONS_KEPT`](crate::OPERATIONS_KEPT).
    #[must_use]
    pub fn operations(&self) -> &[KeptOperation<Outcome>] {
        &self.operations
    }

    /// The last plans, newest last: at most [`PLANS_KEPT`](crate::PLANS_KEPT).
    #[must_use]
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// The sub-cluster of that name.
    #[must_use]
    pub fn subcluster_named(&self, name: &str) -> Option<(SubclusterId, &Subcluster)> {
        self.subclusters.iter().find(|(_, s)| s.name == name).map(|(&id, s)| (id, s))
    }

    /// The model of that name.
    #[must_use]
    pub fn model_named(&self, name: &str) -> Option<(ModelId, &Model)> {
        self.models.iter().find(|(_, m)| m.spec.name == name).map(|(&id, m)| (id, m))
    }

    /// The GPUs bound to a sub-cluster, whether their backend is up or not.
    pub fn gpus_of(&self, subcluster: SubclusterId) -> impl Iterator<Item = &Gpu> {
        self.backends.values().filter(move |b| b.subcluster == subcluster).flat_map(|b| &b.gpus)
    }

    /// The models that new requests for go to a sub-cluster.
    pub fn models_of(&self, subcluster: SubclusterId) -> impl Iterator<Item = &Model> {
        self.models.values().filter(move |m| m.subcluster == subcluster)
    }
}
