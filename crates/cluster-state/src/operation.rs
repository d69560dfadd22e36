//! What operators ask for, and what is remembered of it.

use std::fmt;

use rkyv::rancor;
use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{Duty, Member, NodeId, OperationId};

use crate::command::PlanProposal;
use crate::hash::Fnv1a;
use crate::reply::Outcome;
use crate::spec::ModelSpec;

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
    /// The control group has changed. It is in the log once that is done; the id of a replica that went is never given again.
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
}

/// A replica that comes to the control group.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct NewReplica {
    /// An id that no replica ever had.
    pub node: NodeId,
    /// `host:port` of its control surface.
    pub control_addr: String,
}

/// What is remembered of an operation.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct KeptOperation {
    /// Its place in the log.
    pub index: u64,
    /// Names it.
    pub id: OperationId,
    /// Who asked for it.
    pub actor: String,
    /// When, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// What was asked for, in words.
    pub what: String,
    /// What came of it.
    pub outcome: Outcome,
    /// Of actor and action, to tell a repetition from another command under the same id.
    pub(crate) digest: u64,
}

impl Operation {
    /// A number of who asked for what, however often and through whomever: 64 bits of FNV-1a. It guards against mistakes, such as a
    /// script with a constant id, and not against operators who deceive themselves.
    pub(crate) fn digest(&self) -> u64 {
        let bytes = rkyv::to_bytes::<rancor::Error>(&self.action).expect("an action that was validated can be written");
        Fnv1a::default().over(self.actor.as_bytes()).over(&bytes).get()
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
        }
    }
}

impl fmt::Display for NewReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.node, self.control_addr)
    }
}
