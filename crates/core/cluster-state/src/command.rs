//! Commands: what can be proposed to the control group.

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{BackendId, BootId, CutDigest, FrontendId, Level, Member, ModelId, NodeId, SubclusterId, Token};

use crate::epoch_plan::{Moved, PlanProposal};
use crate::limits::COMMAND_BYTES_MAX;
use crate::operation::{Action, Operation};
use crate::state::HolderState;
use crate::subcluster_policy::PolicyFailure;
use symphony_pipeline::CommittedSplit;
use symphony_replicated::command_bytes_max;
use symphony_replicated::envelope::{self, CodecError, Enveloped};

/// A command as it is in the log.
pub type LogEntry = symphony_replicated::LogEntry<Command>;

/// What is proposed. It is validated completely when it is applied, even if the proposer did so before.
///
/// `avoid` is the proposer, which is the Raft leader: if the sub-cluster is led elsewhere, it survives a crash of the
/// Raft leader without waiting for an election. It is part of the command because the state does not know the Raft
/// leader.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A scheduler replica has started, or is back after it was declared down.
    RegisterNode(NodeRegistration),
    /// The Raft leader found a boot of a replica to be dead.
    NodeDown {
        /// The replica.
        node: NodeId,
        /// The dead boot; other boots are not affected.
        boot: BootId,
        /// A replica that should not become leader if another one can.
        avoid: Option<NodeId>,
    },
    /// A backend has started.
    RegisterBackend(BackendRegistration),
    /// The leader of its sub-cluster found a boot of a backend to be dead.
    BackendDown {
        /// The backend whose boot has died.
        backend: BackendId,
        /// The dead boot; a later boot of the backend stays up.
        boot: BootId,
    },
    /// A frontend has started.
    RegisterFrontend(FrontendRegistration),
    /// A backend reports the result of loading a model.
    ReportModel {
        /// The model that was loaded, or failed to load.
        model: ModelId,
        /// The backend that reports.
        backend: BackendId,
        /// The backend's boot id.
        boot: BootId,
        /// The result.
        state: HolderState,
        /// The loading time, corrected for loads in parallel; 0 if unknown.
        load_ns: u64,
    },
    /// A process reports that it will stop: it is drained until then.
    Leave {
        /// The process.
        member: Member,
        /// The boot that will stop.
        boot: BootId,
    },
    /// A cordoned or draining backend or frontend reports that it has finished all its work.
    ReportDrained {
        /// The process.
        member: Member,
        /// The boot that has finished; a report of an earlier boot is refused.
        boot: BootId,
    },
    /// A replica is to prepare to lead a sub-cluster that another living replica leads; nothing else changes yet.
    BeginHandover {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The assignment to be ended; others are not affected.
        token: Token,
        /// The successor.
        to: NodeId,
        /// The boot in which the successor was seen: after a restart it is no longer ready, and the command is refused.
        boot: BootId,
    },
    /// The successor is ready: it leads from here on, with the index as its token.
    CompleteHandover {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// Log index at which the hand-over began.
        since: u64,
        /// The successor.
        node: NodeId,
        /// The boot in which it got ready: after a restart it is no longer ready, and the command is refused.
        boot: BootId,
    },
    /// A hand-over that does not complete is cancelled; the leader stays.
    CancelHandover {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// Log index at which it began.
        since: u64,
    },
    /// A leader reports that it can no longer decide for a sub-cluster: another living replica, if any, becomes leader
    /// at once.
    CedeLead {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The assignment that ends; others are not affected.
        token: Token,
        /// The former leader.
        node: NodeId,
        /// The boot that led: if the replica has restarted since, the command is refused.
        boot: BootId,
        /// A replica that should not become leader if another one can.
        avoid: Option<NodeId>,
    },
    /// The epoch loop proposes a plan of moves.
    ProposePlan(PlanProposal),
    /// The old sub-cluster of a moved model gets no more requests: its copies there may be unloaded.
    FinishMove {
        /// The model that has been moved.
        model: ModelId,
        /// Log index at which its move began.
        since: u64,
    },
    /// A move that does not complete is cancelled.
    CancelMove {
        /// The model or backend.
        what: Moved,
        /// Log index at which its move began.
        since: u64,
        /// Why it was given up, for display.
        reason: String,
    },
    /// An operator's command.
    Operate(Operation),
    /// A frontend is removed because its slot may be needed and the Raft leader has long received no sign of it.
    ForgetFrontend {
        /// The silent frontend.
        frontend: FrontendId,
        /// The silent boot; other boots are not affected.
        boot: BootId,
    },
    /// A replica reports which policies for sub-clusters its program adds. From level 3 on.
    KnowPolicies {
        /// The replica.
        node: NodeId,
        /// Its boot id; the next boot reports again.
        boot: BootId,
        /// Canonical names of these policies; at most [`POLICIES_KNOWN_MAX`](crate::POLICIES_KNOWN_MAX).
        names: Vec<String>,
    },
    /// The policy of a sub-cluster has ended a lead by its fault: it decides nothing more. From level 3 on.
    PolicyFailed {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The assignment that ends; others are not affected.
        token: Token,
        /// The former leader.
        node: NodeId,
        /// The boot that led: if the replica has restarted since, the command is refused.
        boot: BootId,
        /// What the policy did.
        why: PolicyFailure,
        /// A replica that should not become leader if another one can.
        avoid: Option<NodeId>,
    },
    /// A backend reports where a model that it loaded can be cut. From level 3 on.
    ReportCuts {
        /// The model, as loaded under this id.
        model: ModelId,
        /// The backend that has read the file.
        backend: BackendId,
        /// The backend's boot id.
        boot: BootId,
        /// What it computes up to each cut point, the shallowest first; none if it has to be served whole.
        cuts: Vec<CutDigest>,
    },
    /// The epoch loop has split the budget of a pipeline differently. From level 3 on.
    SetSplit {
        /// The pipeline's name, without a version.
        pipeline: String,
        /// Its version; others are not affected.
        version: u64,
        /// How much of its objective each stage may take from now on.
        split: CommittedSplit,
    },
}

/// The registration of a scheduler replica.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct NodeRegistration {
    /// The id that its configuration gives it; no id of a removed replica.
    pub node: NodeId,
    /// The boot that starts; it leads nothing that an earlier boot led.
    pub boot: BootId,
    /// `host:port` of its control surface.
    pub control_addr: String,
    /// `host:port` where it takes requests for the sub-clusters that it leads.
    pub dispatch_addr: String,
    /// `host:port` where it takes heartbeats while it leads the control group.
    pub beat_addr: String,
    /// Number given to its disk when the disk was empty.
    pub disk: u64,
    /// A replica that should not become leader if another one can.
    pub avoid: Option<NodeId>,
}

/// The registration of a backend, when it starts.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct BackendRegistration {
    /// Its name, which is stable over restarts.
    pub name: String,
    /// The boot that starts; it replaces the one before.
    pub boot: BootId,
    /// `host:port` of its execute link.
    pub exec_addr: String,
    /// Name of its sub-cluster, created by the first backend that names it.
    pub subcluster: String,
    /// Kind of executor.
    pub executor: String,
    /// Its GPUs; one of the same kind at the same position keeps its id over restarts.
    pub gpus: Vec<GpuOffer>,
    /// A replica that should not become leader if another one can.
    pub avoid: Option<NodeId>,
}

/// A GPU that a backend offers.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct GpuOffer {
    /// Its kind; profiles are per kind.
    pub kind: String,
    /// Its memory in bytes; 0 if the executor reports no limit.
    pub memory_bytes: u64,
}

/// The registration of a frontend, when it starts.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct FrontendRegistration {
    /// Its name, which is stable over restarts.
    pub name: String,
    /// The boot that starts; it replaces the one before.
    pub boot: BootId,
    /// `host:port` of its data link.
    pub data_addr: String,
    /// `host:port` of its metrics and console.
    pub console_addr: String,
}

impl Enveloped for Command {
    const MAGIC: &'static str = crate::format::MAGIC;
    const VERSION: u16 = crate::format::VERSION;
    const OLDEST: u16 = crate::format::OLDEST;
    const KIND: u16 = 1;
    const WHAT: &'static str = "command";
    const BYTES_MAX: usize = command_bytes_max(COMMAND_BYTES_MAX);
}

impl Command {
    /// The command as bytes, in the newest version.
    ///
    /// # Errors
    /// If it takes more than [`COMMAND_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        envelope::encode(self)
    }

    /// The command as bytes, for another replica of a cluster at that level.
    ///
    /// # Errors
    /// If it takes more than [`COMMAND_BYTES_MAX`].
    pub fn encode_at(&self, level: Level) -> Result<Vec<u8>, CodecError> {
        envelope::encode_in(self, self.version_at(level))
    }

    /// The version in which it is written, in the log and to other replicas, while the cluster is at that level. Only
    /// what raises the level is of a higher one.
    #[must_use]
    pub fn version_at(&self, level: Level) -> u16 {
        let level = match self {
            Self::Operate(Operation { action: Action::RaiseLevel { level: to }, .. }) => level.max(*to),
            _ => level,
        };
        level.formats().state
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// If the bytes are anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        envelope::decode(bytes)
    }

    /// The stable label of the kind of command, for logs and metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::RegisterNode(_) => "register_node",
            Self::NodeDown { .. } => "node_down",
            Self::RegisterBackend(_) => "register_backend",
            Self::BackendDown { .. } => "backend_down",
            Self::RegisterFrontend(_) => "register_frontend",
            Self::ReportModel { .. } => "report_model",
            Self::Leave { .. } => "leave",
            Self::ReportDrained { .. } => "report_drained",
            Self::BeginHandover { .. } => "begin_handover",
            Self::CompleteHandover { .. } => "complete_handover",
            Self::CancelHandover { .. } => "cancel_handover",
            Self::CedeLead { .. } => "cede_lead",
            Self::ProposePlan(_) => "propose_plan",
            Self::FinishMove { .. } => "finish_move",
            Self::CancelMove { .. } => "cancel_move",
            Self::Operate(operation) => operation.action.label(),
            Self::ForgetFrontend { .. } => "forget_frontend",
            Self::KnowPolicies { .. } => "know_policies",
            Self::PolicyFailed { .. } => "policy_failed",
            Self::ReportCuts { .. } => "report_cuts",
            Self::SetSplit { .. } => "set_split",
        }
    }

    /// This command with the replica to avoid, if the command has such a field: set by the actual proposer.
    #[must_use]
    pub fn avoiding(mut self, proposer: NodeId) -> Self {
        match &mut self {
            Self::RegisterNode(NodeRegistration { avoid, .. })
            | Self::NodeDown { avoid, .. }
            | Self::RegisterBackend(BackendRegistration { avoid, .. })
            | Self::CedeLead { avoid, .. }
            | Self::PolicyFailed { avoid, .. }
            | Self::Operate(Operation { avoid, .. }) => *avoid = Some(proposer),
            Self::BackendDown { .. }
            | Self::RegisterFrontend(_)
            | Self::ReportModel { .. }
            | Self::Leave { .. }
            | Self::ReportDrained { .. }
            | Self::BeginHandover { .. }
            | Self::CompleteHandover { .. }
            | Self::CancelHandover { .. }
            | Self::ProposePlan(_)
            | Self::FinishMove { .. }
            | Self::CancelMove { .. }
            | Self::ForgetFrontend { .. }
            | Self::KnowPolicies { .. }
            | Self::ReportCuts { .. }
            | Self::SetSplit { .. } => {}
        }
        self
    }
}
