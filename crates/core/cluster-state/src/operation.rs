//! What operators ask for.

use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{Duty, FrontendId, Member, NodeId, OperationId};

use crate::command::PlanProposal;
use symphony_replicated::ModelSpec;
use symphony_replicated::operation_book;

/// An operator's command. It is done once, however often it is in the log: its outcome is remembered under its id
/// ([`OPERATIONS_KEPT`](crate::OPERATIONS_KEPT)), and who repeats it is told the same again.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Names it; made by whoever gives the command.
    pub id: OperationId,
    /// Who gave it, by the certificate that the replica saw which was called: `operator/admin`.
    pub actor: String,
    /// When that replica took it, by its wall clock, in milliseconds since 1970. For people; nothing is decided by it.
    pub at_unix_ms: u64,
    /// Where no leader should go if there is a choice.
    pub avoid: Option<NodeId>,
    /// What shall be done.
    pub action: Action,
}

/// What an operator asks for. The `Display` is what `symphony get events` shows.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A sub-cluster shall serve a model.
    LoadModel(ModelSpec),
    /// A model shall no longer be served.
    UnloadModel {
        /// Its name.
        name: String,
    },
    /// What a process is there for.
    SetDuty {
        /// The process, in whichever life.
        member: Member,
        /// What for.
        duty: Duty,
    },
    /// The control group has changed. It is in the log once that is done; the id of a replica that went is never given
    /// again.
    ChangeReplicas {
        /// Who came.
        add: Option<NewReplica>,
        /// Who went.
        remove: Option<NodeId>,
    },
    /// Models and backends shall be elsewhere.
    ProposePlan(PlanProposal),
    /// A plan that waits shall run, or shall not.
    JudgePlan {
        /// Its number.
        plan: u64,
        /// Whether it runs.
        approve: bool,
    },
    /// A frontend that takes nothing new shall be known no more.
    RemoveFrontend {
        /// The frontend.
        frontend: FrontendId,
    },
}

/// A replica that comes to the control group.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct NewReplica {
    /// An id that no replica ever had.
    pub node: NodeId,
    /// `host:port` of its control surface.
    pub control_addr: String,
}

impl Operation {
    /// Tells it from others.
    pub(crate) fn digest(&self) -> u64 {
        operation_book::digest(&self.actor, &self.action)
    }
}

impl Action {
    /// The stable label of the kind of action, for logs and metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::LoadModel(_) => "load_model",
            Self::UnloadModel { .. } => "unload_model",
            Self::SetDuty { .. } => "set_duty",
            Self::ChangeReplicas { .. } => "change_replicas",
            Self::ProposePlan(_) => "propose_plan",
            Self::JudgePlan { .. } => "judge_plan",
            Self::RemoveFrontend { .. } => "remove_frontend",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoadModel(spec) if spec.subcluster.is_empty() => write!(f, "load model {}", spec.name),
            Self::LoadModel(spec) => write!(f, "load model {} on sub-cluster {}", spec.name, spec.subcluster),
            Self::UnloadModel { name } => write!(f, "unload model {name}"),
            Self::SetDuty { member, duty } => write!(f, "make {member} {duty}"),
            Self::ChangeReplicas { add: Some(new), remove: Some(node) } => {
                write!(f, "replace scheduler {node} with {new}")
            }
            Self::ChangeReplicas { add: Some(new), remove: None } => write!(f, "add scheduler {new}"),
            Self::ChangeReplicas { add: None, remove: Some(node) } => write!(f, "remove scheduler {node}"),
            Self::ChangeReplicas { add: None, remove: None } => write!(f, "change no scheduler"),
            Self::ProposePlan(PlanProposal { moves, adopt, .. }) => {
                let (how, first) = (if *adopt { "run" } else { "propose" }, &moves[..moves.len().min(3)]);
                let first: Vec<_> = first.iter().map(ToString::to_string).collect();
                write!(f, "{how} a plan of {} moves: {}", moves.len(), first.join(", "))?;
                if moves.len() > first.len() { f.write_str(", …") } else { Ok(()) }
            }
            Self::JudgePlan { plan, approve: true } => write!(f, "approve plan {plan}"),
            Self::JudgePlan { plan, approve: false } => write!(f, "refuse plan {plan}"),
            Self::RemoveFrontend { frontend } => write!(f, "remove frontend {frontend}"),
        }
    }
}

impl fmt::Display for NewReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.node, self.control_addr)
    }
}
