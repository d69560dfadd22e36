//! Refusals: why a command was refused.

use rkyv::{Archive, Deserialize, Serialize};
use symphony_replicated::InvalidField;
use symphony_types::{BackendId, BootId, Epoch, FrontendId, ModelId, NodeId, OperationId, SubclusterId, Token};

/// Why a command was refused. A refused command changes only the applied index and, if it is an operator's, the record
/// of operations.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The bytes are not a command of this release.
    #[error("the log entry is no command: {reason}")]
    Malformed {
        /// The decoding error.
        reason: String,
    },
    /// The log went backwards, which only a defect can cause.
    #[error("log index {index} after {applied}; indexes must grow")]
    IndexNotNew {
        /// The command's index.
        index: u64,
        /// The last applied index.
        applied: u64,
    },
    /// A field has an invalid value.
    #[error("{field}: {reason}")]
    Invalid {
        /// Path of the field in the command.
        field: String,
        /// What was found and what was expected.
        reason: String,
    },
    /// A limit is reached.
    #[error("the cluster holds {max} {what} already; remove some first")]
    Limit {
        /// What is limited.
        what: String,
        /// The limit.
        max: u64,
    },
    /// A boot that is registered registers with different properties.
    #[error("{what} `{name}` is registered in the same boot ({boot}) with other properties; restart it to change them")]
    Changed {
        /// Kind of process.
        what: String,
        /// The name by which it registers.
        name: String,
        /// The boot in which both registrations came.
        boot: BootId,
    },
    /// The boot is outdated: a newer one has replaced it.
    #[error("{what} `{name}` runs in boot {current} now; boot {named} is over. Two processes may have the same name")]
    StaleBoot {
        /// Kind of process.
        what: String,
        /// Its name or id, for display.
        name: String,
        /// The boot that the command names.
        named: BootId,
        /// The boot that is registered.
        current: BootId,
    },
    /// Unknown replica.
    #[error("unknown scheduler replica {node}")]
    UnknownNode {
        /// The replica.
        node: NodeId,
    },
    /// No backend has the id, or it was forgotten.
    #[error("unknown backend {backend}")]
    UnknownBackend {
        /// The id that the command names.
        backend: BackendId,
    },
    /// Unknown model id.
    #[error("unknown model {model}; it may have been unloaded meanwhile")]
    UnknownModel {
        /// The id that the command names.
        model: ModelId,
    },
    /// No model is loaded under the name.
    #[error("no model is named `{name}`")]
    UnknownModelName {
        /// The name that the command gives.
        name: String,
    },
    /// Unknown sub-cluster name.
    #[error("no sub-cluster is named `{name}`; the first backend that names it creates it")]
    UnknownSubcluster {
        /// The name that the command gives.
        name: String,
    },
    /// No sub-cluster was named, and there is not exactly one.
    #[error("no sub-cluster was named and there are {count}; name one of them (see `symphony get subclusters`)")]
    WhichSubcluster {
        /// Their number.
        count: u64,
    },
    /// The name is used by another model.
    #[error("a model `{name}` is loaded with another specification; unload it first or choose another name")]
    NameTaken {
        /// The name that both models would have.
        name: String,
    },
    /// A GPU of the sub-cluster cannot run the model.
    #[error(
        "model `{model}` has no profile for GPU kind `{kind}`, which sub-cluster `{subcluster}` holds; measure one"
    )]
    ProfileMissing {
        /// Name of the model.
        model: String,
        /// The GPU kind.
        kind: String,
        /// The sub-cluster.
        subcluster: String,
    },
    /// The models do not fit on a GPU of the sub-cluster (invariant C3).
    #[error(
        "the models of sub-cluster `{subcluster}` need {needed_bytes} bytes on a GPU of kind `{kind}` that has {memory_bytes}"
    )]
    OutOfMemory {
        /// The sub-cluster.
        subcluster: String,
        /// The GPU kind.
        kind: String,
        /// Memory needed, with all models loaded and the largest batch of the largest one running.
        needed_bytes: u64,
        /// Memory of the GPU.
        memory_bytes: u64,
    },
    /// The backend is not in the model's sub-cluster.
    #[error("backend {backend} is not in the sub-cluster of model {model}")]
    NotInSubcluster {
        /// The backend that reported.
        backend: BackendId,
        /// The model of which it reported.
        model: ModelId,
    },
    /// No frontend has the id, or it was forgotten.
    #[error("unknown frontend {frontend}")]
    UnknownFrontend {
        /// The id that the command names.
        frontend: FrontendId,
    },
    /// Unknown sub-cluster id.
    #[error("unknown sub-cluster {subcluster}")]
    UnknownSubclusterId {
        /// The sub-cluster.
        subcluster: SubclusterId,
    },
    /// The sub-cluster is led under another token.
    #[error("sub-cluster {subcluster} is led under token {current}; the assignment under {named} is over")]
    AssignmentOver {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The token that the command names.
        named: Token,
        /// The token under which it is led now.
        current: Token,
    },
    /// The replica already leads, is down, or is cordoned or draining.
    #[error(
        "{node} cannot take over sub-cluster {subcluster}: it leads it, is down or cordoned, or does not know its policy"
    )]
    CannotSucceed {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The replica.
        node: NodeId,
    },
    /// Another replica is preparing to lead.
    #[error("sub-cluster {subcluster} is being handed over to another replica")]
    HandoverUnderWay {
        /// The sub-cluster.
        subcluster: SubclusterId,
    },
    /// The hand-over was completed or cancelled.
    #[error("no hand-over of sub-cluster {subcluster} that began at {since} is under way")]
    HandoverOver {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// Log index at which it began.
        since: u64,
    },
    /// A process whose duty is to serve cannot be drained.
    #[error("{member} is not draining")]
    NotDraining {
        /// The process.
        member: String,
    },
    /// The replica was removed, and its id is not reused.
    #[error(
        "scheduler {node} was removed from the cluster and its id is never given again; start it over an empty directory with a new id (symphony members add)"
    )]
    NodeRemoved {
        /// The replica.
        node: NodeId,
    },
    /// The id was used for another operation.
    #[error(
        "operation id {id} stands for another command, or another operator's, at log index {index}: nothing was done; every command takes a fresh id"
    )]
    OperationReused {
        /// The id that both operations have.
        id: OperationId,
        /// Log index of that operation.
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
    /// The subject of the move is not where the plan expects it.
    #[error("{wanted} is out of date: it is elsewhere by now, or on its way")]
    MoveOutdated {
        /// The move.
        wanted: String,
    },
    /// The backend is the only one of its sub-cluster.
    #[error(
        "no other backend of sub-cluster `{subcluster}` takes work and holds all that it serves: {backend} stays until its models are elsewhere"
    )]
    NobodyLeft {
        /// The backend that was to move.
        backend: BackendId,
        /// The sub-cluster.
        subcluster: String,
    },
    /// The move has progressed, ended or was cancelled.
    #[error("no move of {what} that began at {since} is at this point")]
    MoveOver {
        /// The subject of the move.
        what: String,
        /// Log index at which the move began.
        since: u64,
    },
    /// The plan can no longer be approved or refused.
    #[error("no plan {plan} waits for approval (see `symphony get epochs`)")]
    NoSuchPlan {
        /// Its number.
        plan: u64,
    },
    /// The cluster has changed since the plan was made.
    #[error("the plan was made for epoch {planned}, and this is epoch {current}")]
    PlanOutdated {
        /// The epoch of the plan.
        planned: Epoch,
        /// The epoch now.
        current: Epoch,
    },
    /// A frontend that takes requests cannot be removed.
    #[error("frontend {frontend} (`{name}`) takes requests; have it take no more first: symphony drain {frontend}")]
    TakesRequests {
        /// The frontend that was to be removed.
        frontend: FrontendId,
        /// The name of its registration.
        name: String,
    },
    /// No pipeline is loaded under the name.
    #[error("no pipeline is named `{name}`")]
    UnknownPipeline {
        /// The name that the command gives, or that of the version.
        name: String,
    },
    /// A pipeline cannot be served by the models that are loaded.
    #[error("pipeline `{pipeline}`: {reason}")]
    PipelineUnfit {
        /// Name of the pipeline, without a version.
        pipeline: String,
        /// The key, what was expected, and what was found.
        reason: String,
    },
    /// A stage of a pipeline asks the model, and no other version of it is loaded.
    #[error(
        "model `{model}` is asked by pipeline `{pipeline}`; unload that first, or load another version of the model"
    )]
    UsedByPipeline {
        /// Name of the model, with its version if it has one.
        model: String,
        /// Name of a pipeline that asks it, with its version.
        pipeline: String,
    },
}

impl From<InvalidField> for Refusal {
    fn from(InvalidField { field, reason }: InvalidField) -> Self {
        Self::Invalid { field, reason }
    }
}
