//! What can be proposed to the control group.

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{BackendId, BootId, Epoch, FrontendId, Member, ModelId, NodeId, SubclusterId, Token};

use crate::limits::COMMAND_BYTES_MAX;
use crate::operation::Operation;
use crate::plan::{LeftAlone, Moved, WantedMove};
use crate::refusal::Refusal;
use crate::state::ReplicaState;
use symphony_replicated::envelope::{self, CodecError, Enveloped};

/// One entry of the log. Everything in it is validated when it is applied, whatever the proposer did.
///
/// `avoid` is the node that proposes, which is the Raft leader: a sub-cluster led elsewhere survives its crash without
/// waiting for an election. It is part of the command because the state does not know who leads the group.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A scheduler replica's life begins, or it is there again after it was declared down.
    RegisterNode(NodeRegistration),
    /// A life of a replica is over, as far as the Raft leader can tell.
    NodeDown {
        /// The replica.
        node: NodeId,
        /// The life that is over; another one is not touched.
        boot: BootId,
        /// Where no leader should go if there is a choice.
        avoid: Option<NodeId>,
    },
    /// A backend's life begins.
    RegisterBackend(BackendRegistration),
    /// A life of a backend is over, as far as its sub-cluster's leader can tell.
    BackendDown {
        /// The backend.
        backend: BackendId,
        /// The life that is over; another one is not touched.
        boot: BootId,
    },
    /// A frontend's life begins.
    RegisterFrontend(FrontendRegistration),
    /// A backend says how loading a model went.
    ReportModel {
        /// The model.
        model: ModelId,
        /// The backend.
        backend: BackendId,
        /// The backend's life.
        boot: BootId,
        /// How it went.
        state: ReplicaState,
        /// How long loading took, what was loaded beside it discounted; 0 if there is nothing to tell.
        load_ns: u64,
    },
    /// A process says that this life of it is about to end: it is drained until then.
    Leave {
        /// The process.
        member: Member,
        /// The life that ends.
        boot: BootId,
    },
    /// A backend or frontend that takes nothing new says that it has nothing left to finish.
    ReportDrained {
        /// The process.
        member: Member,
        /// Its life.
        boot: BootId,
    },
    /// A replica shall get ready to lead a sub-cluster that a living one leads; nothing else changes yet.
    BeginHandover {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The assignment that shall end; another one is not touched.
        token: Token,
        /// Who shall lead.
        to: NodeId,
        /// In which life.
        boot: BootId,
    },
    /// The successor is ready: it leads from here on, with the index as the token.
    CompleteHandover {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// Where the hand-over began.
        since: u64,
        /// The successor.
        node: NodeId,
        /// Its life.
        boot: BootId,
    },
    /// A hand-over that does not come to its end is given up; the leader stays.
    CancelHandover {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// Where it began.
        since: u64,
    },
    /// A leader says that it cannot decide any more for a sub-cluster: somebody else leads it at once, if anybody is
    /// up.
    CedeLead {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The assignment that ends; another one is not touched.
        token: Token,
        /// The replica that led.
        node: NodeId,
        /// Its life.
        boot: BootId,
        /// Where no leader should go if there is a choice.
        avoid: Option<NodeId>,
    },
    /// The epoch loop would have models and backends elsewhere.
    ProposePlan(PlanProposal),
    /// Nobody asks the old sub-cluster of a moved model any more: its copies there may go.
    FinishMove {
        /// The model.
        model: ModelId,
        /// Where its move began.
        since: u64,
    },
    /// A move that does not come to its end is given up.
    CancelMove {
        /// What moves.
        what: Moved,
        /// Where its move began.
        since: u64,
        /// Why.
        reason: String,
    },
    /// An operator asks for something.
    Operate(Operation),
    /// The place of a frontend may be needed, and the Raft leader has not seen a sign of it for long.
    ForgetFrontend {
        /// The frontend.
        frontend: FrontendId,
        /// The life that is over; another one is not touched.
        boot: BootId,
    },
}

/// What the epoch loop solved for.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanProposal {
    /// The epoch that it was solved from: in another one it is outdated, and it runs only if no other plan does. 0 if
    /// neither matters.
    pub epoch: Epoch,
    /// Why it was made, for people.
    pub cause: String,
    /// What it is good for, for people.
    pub summary: String,
    /// Its moves.
    pub moves: Vec<WantedMove>,
    /// Models that can be nowhere, and stay where they are. A plan without moves is one that only names these.
    pub left_alone: Vec<LeftAlone>,
    /// What a backend loads per second of which nothing was measured; 0 if that is not known.
    pub load_bytes_per_s: u64,
    /// Whether it runs at once, or waits for an operator's approval.
    pub adopt: bool,
}

/// What a scheduler replica says of itself.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct NodeRegistration {
    /// Its id.
    pub node: NodeId,
    /// Its life.
    pub boot: BootId,
    /// `host:port` of its control surface.
    pub control_addr: String,
    /// `host:port` where it takes requests for the sub-clusters it leads.
    pub dispatch_addr: String,
    /// `host:port` where it takes beats while it leads the control group.
    pub beat_addr: String,
    /// Number that its disk was given when it was empty.
    pub disk: u64,
    /// Where no leader should go if there is a choice.
    pub avoid: Option<NodeId>,
}

/// What a backend says of itself.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct BackendRegistration {
    /// Its name, kept over restarts.
    pub name: String,
    /// Its life.
    pub boot: BootId,
    /// `host:port` of its execute link.
    pub exec_addr: String,
    /// Name of its sub-cluster, which the first backend creates.
    pub subcluster: String,
    /// Kind of executor.
    pub executor: String,
    /// Its GPUs.
    pub gpus: Vec<GpuOffer>,
    /// Where no leader should go if there is a choice.
    pub avoid: Option<NodeId>,
}

/// A GPU that a backend brings.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct GpuOffer {
    /// Its kind; profiles are per kind.
    pub kind: String,
    /// Its memory in bytes; 0 if the executor has no limit to tell.
    pub memory_bytes: u64,
}

/// What a frontend says of itself.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct FrontendRegistration {
    /// Its name, kept over restarts.
    pub name: String,
    /// Its life.
    pub boot: BootId,
    /// `host:port` of its data link.
    pub data_addr: String,
    /// `host:port` of its metrics and console.
    pub console_addr: String,
}

impl Enveloped for Command {
    const MAGIC: &'static str = crate::snapshot::MAGIC;
    const VERSION: u16 = crate::snapshot::VERSION;
    const KIND: u16 = 1;
    const WHAT: &'static str = "command";
    const BYTES_MAX: usize = COMMAND_BYTES_MAX;
}

impl Command {
    /// The command as bytes for the log.
    ///
    /// # Errors
    /// If it takes more than [`COMMAND_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        envelope::encode(self)
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// If the bytes are anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        envelope::decode(bytes)
    }

    /// Checks a command before it enters the log: everything that applying it will check without the state, since what
    /// cannot succeed need not enter, and limits that earlier releases did not have.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] with the field, what was found and what was expected.
    pub fn validate(&self) -> Result<(), Refusal> {
        Ok(crate::validate::new_command(self)?)
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
        }
    }

    /// The same command with the node to avoid, where it has one: set by whoever really proposes it.
    #[must_use]
    pub fn avoiding(mut self, proposer: NodeId) -> Self {
        match &mut self {
            Self::RegisterNode(NodeRegistration { avoid, .. })
            | Self::NodeDown { avoid, .. }
            | Self::RegisterBackend(BackendRegistration { avoid, .. })
            | Self::CedeLead { avoid, .. }
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
            | Self::ForgetFrontend { .. } => {}
        }
        self
    }
}
