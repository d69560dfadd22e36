//! The state of a federation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rkyv::{Archive, Deserialize, Serialize};
use symphony_replicated::{KeptOperation, ModelSpec};
use symphony_types::OperationId;

use crate::refusal::Outcome;

/// Clusters, models, and the home of each model.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct FederationState {
    pub(crate) applied_index: u64,
    pub(crate) plan: u64,
    pub(crate) clusters: BTreeMap<String, Cluster>,
    pub(crate) models: BTreeMap<String, Model>,
    pub(crate) operations: Vec<KeptOperation<Outcome>>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) plans: VecDeque<FederatedPlan>,
    pub(crate) replicas: BTreeSet<u64>,
}

/// A cluster, by its name.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// `host:port` of its scheduler replicas' control surfaces.
    pub control: Vec<String>,
    /// Its GPUs by kind.
    pub kinds: BTreeMap<String, KindCapacity>,
    /// Whether a quorum of it answers.
    pub reachable: bool,
    /// Log index since which it does or does not.
    pub since: u64,
}

/// The GPUs of one kind in a cluster.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindCapacity {
    /// GPUs that take work.
    pub gpus: u32,
    /// Their total memory in bytes.
    pub memory_bytes: u64,
}

/// A model, by its name.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The specification that clusters load; its sub-cluster is chosen for each of them.
    pub spec: ModelSpec,
    /// The requested rate, in thousandths of a request per second.
    pub wanted_mrps: u64,
    /// The requested initial cluster; empty for any.
    pub first_home: String,
    /// The operation that loaded it; the ids of commands to clusters are derived from it.
    pub operation: OperationId,
    /// Log index at which it was loaded.
    pub loaded_at: u64,
    /// Its home: the target of new requests.
    pub home: Option<Home>,
    /// Its move, if any.
    pub moving: Option<Move>,
    /// Clusters that may hold a copy to be unloaded, with the log index since which.
    pub leftovers: BTreeMap<String, u64>,
    /// Whether it was removed: it is forgotten once no copy is left.
    pub unloading: bool,
    /// Why it has no home that answers; empty if it has one or was not considered yet.
    pub unplaced: String,
}

/// The home of a model.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Name of the cluster that serves it.
    pub cluster: String,
    /// The sub-cluster that loaded it; its cluster may have moved it since.
    pub subcluster: String,
    /// Log index since which.
    pub since: u64,
}

/// A move of a model to another cluster, which loads it while its home serves.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The cluster.
    pub to: String,
    /// The sub-cluster.
    pub subcluster: String,
    /// Log index at which it began.
    pub since: u64,
    /// The reason.
    pub cause: Cause,
}

/// The reason for moves.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The model had no home.
    Place,
    /// Its home does not answer.
    Loss,
    /// An operator requested it.
    Operator,
    /// Another distribution of the models is more even.
    Balance,
}

impl Cause {
    /// The stable label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Place => "place",
            Self::Loss => "loss",
            Self::Operator => "operator",
            Self::Balance => "balance",
        }
    }
}

/// Moves that began together. For display only; no decision reads it.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct FederatedPlan {
    /// Log index at which they began.
    pub id: u64,
    /// The reason.
    pub cause: Cause,
    /// The moves, each with how far it is.
    pub moves: Vec<PlannedMove>,
}

/// A move of a model.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    /// Name of the model that moves.
    pub model: String,
    /// Its home at the time, if any.
    pub from: Option<String>,
    /// The target cluster.
    pub to: String,
    /// How far it has come.
    pub progress: Progress,
}

/// The progress of a move.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Its target loads the model.
    UnderWay,
    /// Completed: new requests go there since this log index.
    Done(u64),
    /// Cancelled for this reason.
    GivenUp(String),
}

/// Something that changed, for display.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Log index.
    pub index: u64,
    /// When the command was proposed ([`crate::LogEntry::at_unix_ms`]); 0 if unknown.
    pub at_unix_ms: u64,
    /// Its text.
    pub what: String,
}

impl FederationState {
    /// Log index of the last command.
    #[must_use]
    pub const fn applied_index(&self) -> u64 {
        self.applied_index
    }

    /// Version of the routes (invariant F2).
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

    /// The latest events, newest last.
    #[must_use]
    pub const fn events(&self) -> &VecDeque<Event> {
        &self.events
    }

    /// The last operations, newest last.
    #[must_use]
    pub fn operations(&self) -> &[KeptOperation<Outcome>] {
        &self.operations
    }

    /// The last plans, newest last.
    #[must_use]
    pub const fn plans(&self) -> &VecDeque<FederatedPlan> {
        &self.plans
    }

    /// Replicas of the group that have held an entry of its log.
    #[must_use]
    pub const fn replicas(&self) -> &BTreeSet<u64> {
        &self.replicas
    }

    /// How many models are on their way to another cluster.
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
    /// Whether the cluster is its home or its move's target.
    #[must_use]
    pub fn belongs_to(&self, cluster: &str) -> bool {
        self.home.as_ref().is_some_and(|home| home.cluster == cluster)
            || self.moving.as_ref().is_some_and(|moving| moving.to == cluster)
    }

    /// Its bytes in a snapshot without leftovers, accurate to a few dozen.
    pub(crate) fn weight_bytes(&self) -> usize {
        self.spec.weight_bytes()
    }
}
