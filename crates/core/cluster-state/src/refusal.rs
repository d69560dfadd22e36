//! Why a command was refused.

use rkyv::{Archive, Deserialize, Serialize};
use symphony_replicated::InvalidField;
use symphony_types::{BackendId, BootId, Epoch, FrontendId, ModelId, NodeId, OperationId, SubclusterId, Token};

/// Why a command was refused. A refused command changes nothing but the applied index and, if it is an operator's, what
/// is remembered of those.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The bytes are no command of this release.
    #[error("the log entry is no command: {reason}")]
    Malformed {
        /// What is wrong.
        reason: String,
    },
    /// The log went backwards, which only a defect can cause.
    #[error("log index {index} after {applied}; indexes must grow")]
    IndexNotNew {
        /// Index of the command.
        index: u64,
        /// Index applied before.
        applied: u64,
    },
    /// A field's value is not acceptable.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field.
        field: String,
        /// What was found and what was expected.
        reason: String,
    },
    /// There is no room for another.
    #[error("the cluster holds {max} {what} already; remove some first")]
    Limit {
        /// What is full.
        what: String,
        /// Its limit.
        max: u64,
    },
    /// The same life says something else than before.
    #[error("{what} `{name}` is registered in the same life ({boot}) with other properties; restart it to change them")]
    Changed {
        /// Kind of process.
        what: String,
        /// Its name.
        name: String,
        /// Its life.
        boot: BootId,
    },
    /// The life is over: a younger one has taken its place.
    #[error("{what} `{name}` lives as {current} now; {named} is over. Two processes may have the same name")]
    StaleLife {
        /// Kind of process.
        what: String,
        /// Its name.
        name: String,
        /// The life that was named.
        named: BootId,
        /// The life that counts.
        current: BootId,
    },
    /// There is no such replica.
    #[error("unknown scheduler replica {node}")]
    UnknownNode {
        /// The replica.
        node: NodeId,
    },
    /// There is no such backend.
    #[error("unknown backend {backend}")]
    UnknownBackend {
        /// The backend.
        backend: BackendId,
    },
    /// There is no such model.
    #[error("unknown model {model}; it may have been unloaded meanwhile")]
    UnknownModel {
        /// The model.
        model: ModelId,
    },
    /// No model has that name.
    #[error("no model is named `{name}`")]
    UnknownModelName {
        /// The name.
        name: String,
    },
    /// No sub-cluster has that name.
    #[error("no sub-cluster is named `{name}`; the first backend that names it creates it")]
    UnknownSubcluster {
        /// The name.
        name: String,
    },
    /// The sub-cluster was left open, but there is not exactly one.
    #[error("no sub-cluster was named and there are {count}; name one of them (see `symphony get subclusters`)")]
    WhichSubcluster {
        /// How many there are.
        count: u64,
    },
    /// The name belongs to another model.
    #[error("a model `{name}` is loaded with another specification; unload it first or choose another name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A GPU of the sub-cluster could not run the model.
    #[error(
        "model `{model}` has no profile for GPU kind `{kind}`, which sub-cluster `{subcluster}` holds; measure one"
    )]
    ProfileMissing {
        /// The model.
        model: String,
        /// The GPU kind.
        kind: String,
        /// The sub-cluster.
        subcluster: String,
    },
    /// A GPU of the sub-cluster could not hold its models (invariant C3).
    #[error(
        "the models of sub-cluster `{subcluster}` need {needed_bytes} bytes on a GPU of kind `{kind}` that has {memory_bytes}"
    )]
    OutOfMemory {
        /// The sub-cluster.
        subcluster: String,
        /// The GPU kind.
        kind: String,
        /// All models loaded, and the largest batch of the greediest running.
        needed_bytes: u64,
        /// What the GPU has.
        memory_bytes: u64,
    },
    /// The backend does not serve the model's sub-cluster.
    #[error("backend {backend} is not in the sub-cluster of model {model}")]
    NotInSubcluster {
        /// The backend.
        backend: BackendId,
        /// The model.
        model: ModelId,
    },
    /// There is no such frontend.
    #[error("unknown frontend {frontend}")]
    UnknownFrontend {
        /// The frontend.
        frontend: FrontendId,
    },
    /// There is no such sub-cluster.
    #[error("unknown sub-cluster {subcluster}")]
    UnknownSubclusterId {
        /// The sub-cluster.
        subcluster: SubclusterId,
    },
    /// The sub-cluster is led under another token by now.
    #[error("sub-cluster {subcluster} is led under token {current}; the assignment under {named} is over")]
    AssignmentOver {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The token that was named.
        named: Token,
        /// The token that counts.
        current: Token,
    },
    /// The replica leads already, is down, or is to be given nothing.
    #[error("{node} cannot take over sub-cluster {subcluster}: it leads it, is down, or is cordoned")]
    CannotSucceed {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The replica.
        node: NodeId,
    },
    /// Another replica is getting ready to lead.
    #[error("sub-cluster {subcluster} is being handed over to another replica")]
    HandoverUnderWay {
        /// The sub-cluster.
        subcluster: SubclusterId,
    },
    /// The hand-over was completed or given up.
    #[error("no hand-over of sub-cluster {subcluster} that began at {since} is under way")]
    HandoverOver {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// Where it began.
        since: u64,
    },
    /// A process that may be given work is never drained.
    #[error("{member} is not draining")]
    NotDraining {
        /// The process.
        member: String,
    },
    /// The replica was removed, and its id is not given again.
    #[error(
        "scheduler {node} was removed from the cluster and its id is never given again; start it over an empty directory with a new id (symphony members add)"
    )]
    NodeRemoved {
        /// The replica.
        node: NodeId,
    },
    /// The id stands for something else already.
    #[error(
        "operation id {id} stands for another command, or another operator's, at log index {index}: nothing was done; every command takes a fresh id"
    )]
    OperationReused {
        /// The id.
        id: OperationId,
        /// Where the log holds what it stands for.
        index: u64,
    },
    /// The replica lost its disk, and with it its votes.
    #[error(
        "scheduler {node} came back over another disk: what it voted for is forgotten; give it a new id (symphony members replace {node} …) or its old disk"
    )]
    DiskLost {
        /// The replica.
        node: NodeId,
    },
    /// What shall move is not where the plan expects it.
    #[error("{wanted} is out of date: it is elsewhere by now, or on its way")]
    MoveOutdated {
        /// The move that was wanted.
        wanted: String,
    },
    /// The backend serves its sub-cluster alone.
    #[error(
        "no other backend of sub-cluster `{subcluster}` takes work and holds all that it serves: {backend} stays until its models are elsewhere"
    )]
    NobodyLeft {
        /// The backend.
        backend: BackendId,
        /// The sub-cluster.
        subcluster: String,
    },
    /// The move has come further, has ended or was called off.
    #[error("no move of {what} that began at {since} is at this point")]
    MoveOver {
        /// What moved.
        what: String,
        /// Where the move began.
        since: u64,
    },
    /// The plan cannot be approved or refused any more.
    #[error("no plan {plan} waits for approval (see `symphony get epochs`)")]
    NoSuchPlan {
        /// Its number.
        plan: u64,
    },
    /// The cluster has changed since the plan was made.
    #[error("the plan was made for epoch {planned}, and this is epoch {current}")]
    PlanOutdated {
        /// The epoch that it was made for.
        planned: Epoch,
        /// The epoch that is.
        current: Epoch,
    },
    /// Who takes work is not removed.
    #[error("frontend {frontend} (`{name}`) takes requests; have it take no more first: symphony drain {frontend}")]
    TakesRequests {
        /// The frontend.
        frontend: FrontendId,
        /// Its name.
        name: String,
    },
}

impl From<InvalidField> for Refusal {
    fn from(InvalidField { field, reason }: InvalidField) -> Self {
        Self::Invalid { field, reason }
    }
}
