//! What a federation is.

use std::collections::{BTreeMap, VecDeque};

use rkyv::{Archive, Deserialize, Serialize};
use symphony_replicated::{KeptOperation, ModelSpec};
use symphony_types::OperationId;

use crate::command::Cause;
use crate::refusal::Outcome;

/// Clusters, models, and where each model is.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct FederationState {
    pub(crate) applied_index: u64,
    pub(crate) plan: u64,
    pub(crate) clusters: BTreeMap<String, Cluster>,
    pub(crate) models: BTreeMap<String, Model>,
    pub(crate) operations: Vec<KeptOperation<Outcome>>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) plans: VecDeque<Plan>,
}

/// A cluster, by its name.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// `host:port` of its scheduler replicas' control surfaces.
    pub control: Vec<String>,
    /// What it has, by GPU kind.
    pub kinds: BTreeMap<String, KindCapacity>,
    /// A quorum of it answers.
    pub reachable: bool,
    /// Log index since which it does, or does not.
    pub since: u64,
}

/// What a cluster has of a kind of GPU.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindCapacity {
    /// GPUs that take work.
    pub gpus: u32,
    /// Their memory together, in bytes.
    pub memory_bytes: u64,
}

/// A model, by its name.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// What clusters are asked to load; its sub-cluster is chosen anew for each of them.
    pub spec: ModelSpec,
    /// Requests per second that it was said to need, in thousandths.
    pub wanted_mrps: u64,
    /// The cluster it was said to begin in; empty: any.
    pub first_home: String,
    /// The operation that loaded it; the ids of what clusters are asked to do derive from it.
    pub operation: OperationId,
    /// Log index at which it was loaded.
    pub loaded_at: u64,
    /// Where new requests go.
    pub home: Option<Home>,
    /// Where it is going.
    pub moving: Option<Move>,
    /// Clusters that may hold a copy which is to be let go of, with the log index since which.
    pub leftovers: BTreeMap<String, u64>,
    /// It goes as soon as there is no copy left.
    pub unloading: bool,
    /// Why it has no place, or none that answers; empty if it has one or nobody has looked yet.
    pub unplaced: String,
}

/// Where a model is served.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// The cluster.
    pub cluster: String,
    /// The sub-cluster it was loaded into; its cluster may have moved it since.
    pub subcluster: String,
    /// Log index since which.
    pub since: u64,
}

/// The way of a model to another cluster: that one loads it, while its home serves.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The cluster.
    pub to: String,
    /// The sub-cluster.
    pub subcluster: String,
    /// Log index at which it began.
    pub since: u64,
    /// Why.
    pub cause: Cause,
}

/// Moves that began together. For people: nothing is decided by it.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Log index at which they began.
    pub id: u64,
    /// Why.
    pub cause: Cause,
    /// Which.
    pub moves: Vec<PlannedMove>,
}

/// A model that was to be elsewhere.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    /// The model.
    pub model: String,
    /// The cluster where it was at home, if it had one.
    pub from: Option<String>,
    /// The cluster to which it went.
    pub to: String,
    /// What became of it.
    pub progress: Progress,
}

/// What became of a move.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Its target loads it.
    UnderWay,
    /// New requests go there since this log index.
    Done(u64),
    /// It ended where it was, and why.
    GivenUp(String),
}

/// Something that changed.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Log index.
    pub index: u64,
    /// What, in words.
    pub what: String,
}

impl FederationState {
    /// Log index of the last command.
    #[must_use]
    pub const fn applied_index(&self) -> u64 {
        self.applied_index
    }

    /// Version of what requests are routed by (invariant F2).
    #[must_use]
    pub const fn plan(&self) -> u64 {
        self.plan
    }

    /// Clusters by name.
    #[must_use]
    pub const fn clusters(&self) -> &BTreeMap<String, Cluster> {
        &self.clusters
    }

    /// Models by name.
    #[must_use]
    pub const fn models(&self) -> &BTreeMap<String, Model> {
        &self.models
    }

    /// What changed lately, newest last.
    #[must_use]
    pub const fn events(&self) -> &VecDeque<Event> {
        &self.events
    }

    /// What operators asked for last, newest last.
    #[must_use]
    pub fn operations(&self) -> &[KeptOperation<Outcome>] {
        &self.operations
    }

    /// The last plans, newest last.
    #[must_use]
    pub const fn plans(&self) -> &VecDeque<Plan> {
        &self.plans
    }

    /// Moves under way.
    #[must_use]
    pub fn moves_under_way(&self) -> usize {
        self.models.values().filter(|model| model.moving.is_some()).count()
    }

    /// Whether a quorum of the cluster answers.
    #[must_use]
    pub fn is_reachable(&self, cluster: &str) -> bool {
        self.clusters.get(cluster).is_some_and(|cluster| cluster.reachable)
    }
}

impl Model {
    /// Whether the cluster is its home, or will be.
    #[must_use]
    pub fn belongs_to(&self, cluster: &str) -> bool {
        self.home.as_ref().is_some_and(|home| home.cluster == cluster)
            || self.moving.as_ref().is_some_and(|moving| moving.to == cluster)
    }

    /// Bytes that it takes in a snapshot beside its leftovers, within a few dozen.
    pub(crate) fn weight_bytes(&self) -> usize {
        self.spec.weight_bytes()
    }
}
