//! Operations: commands by operators.

use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};
use symphony_policy::ModelPolicy;
use symphony_types::{Duty, FrontendId, Level, Member, Nanos, NodeId, OperationId, RequestValue};

use crate::epoch_plan::PlanProposal;
use crate::traffic_split::Traffic;
use symphony_pipeline::PipelineDeclaration;
use symphony_replicated::ModelSpec;
use symphony_replicated::operation_book;

/// An operator's command. It is executed once, however often it is in the log: the reply is recorded under its id
/// ([`OPERATIONS_KEPT`](crate::OPERATIONS_KEPT)), and a repetition gets the same reply.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its id, chosen by the sender.
    pub id: OperationId,
    /// The operator, by the client certificate that the called replica saw: `operator/admin`.
    pub actor: String,
    /// When that replica received it, by its wall clock, in milliseconds since 1970. For display only; no decision
    /// reads it.
    pub at_unix_ms: u64,
    /// A replica that should not become leader if another one can.
    pub avoid: Option<NodeId>,
    /// What the operator wants done.
    pub action: Action,
}

/// The action of an operation. The `Display` is what `symphony get events` shows.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Add a model to a sub-cluster.
    LoadModel(ModelSpec),
    /// Remove a model.
    UnloadModel {
        /// Name of the model, with its version if it has one.
        name: String,
    },
    /// Serve a loaded model otherwise; what is not given stays.
    ChangeModel {
        /// Name of the model, with its version if it has one.
        name: String,
        /// Its latency objective.
        slo_ns: Option<u64>,
        /// How its requests are scheduled from now on.
        policy: Option<ModelPolicy>,
        /// What a request is worth from now on, relative to those of other models.
        value: Option<RequestValue>,
    },
    /// Split the requests for a model or pipeline that name no version among its versions.
    SetTraffic {
        /// Its name, without a version.
        model: String,
        /// The split; an empty one gives all to the latest version.
        traffic: Traffic,
    },
    /// Set the duty of a process.
    SetDuty {
        /// The process, in any boot.
        member: Member,
        /// The work that it may be given from now on.
        duty: Duty,
    },
    /// The membership of the control group has changed. Logged after the change; the id of a removed replica is never
    /// reused.
    ChangeReplicas {
        /// The added replica.
        add: Option<NewReplica>,
        /// The removed replica.
        remove: Option<NodeId>,
    },
    /// Propose moves, to run at once or once an operator has approved them.
    ProposePlan(PlanProposal),
    /// Approve or refuse a waiting plan.
    ReviewPlan {
        /// Its number.
        plan: u64,
        /// Whether it is approved.
        approve: bool,
    },
    /// Forget a frontend that is cordoned or draining.
    RemoveFrontend {
        /// Its id; a frontend that comes back after its removal gets another one.
        frontend: FrontendId,
    },
    /// Write by a higher level, which every process knows. Written in the format of that level, as everything after
    /// it: a process that does not know it stops here.
    RaiseLevel {
        /// The level from here on; one that is not above the present level changes nothing.
        level: Level,
    },
    /// Let a policy decide for a whole sub-cluster. From level 3 on.
    SetPolicy {
        /// Its name.
        subcluster: String,
        /// The policy; [`POLICY_OF_MODELS`](crate::POLICY_OF_MODELS) lets each model have its own.
        policy: String,
    },
    /// Add a pipeline of loaded models, or another version of one. From level 3 on.
    LoadPipeline(PipelineDeclaration),
    /// Remove a pipeline, or a version of it. From level 3 on.
    UnloadPipeline {
        /// Its name for all versions, `NAME@VERSION` for one.
        name: String,
    },
}

/// Bytes of a policy's text in the words of an operation; a longer one is cut.
const POLICY_WORDS_BYTES_MAX: usize = 256;

/// A replica that joins the control group.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct NewReplica {
    /// An id that no replica ever had.
    pub node: NodeId,
    /// `host:port` of its control surface.
    pub control_addr: String,
}

impl Operation {
    /// Hash of actor and action: the same id with another digest is refused.
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
            Self::ChangeModel { .. } => "change_model",
            Self::SetTraffic { .. } => "set_traffic",
            Self::SetDuty { .. } => "set_duty",
            Self::ChangeReplicas { .. } => "change_replicas",
            Self::ProposePlan(_) => "propose_plan",
            Self::ReviewPlan { .. } => "review_plan",
            Self::RemoveFrontend { .. } => "remove_frontend",
            Self::RaiseLevel { .. } => "raise_level",
            Self::SetPolicy { .. } => "set_policy",
            Self::LoadPipeline(_) => "load_pipeline",
            Self::UnloadPipeline { .. } => "unload_pipeline",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoadModel(spec) if spec.subcluster.is_empty() => write!(f, "load model {}", spec.name),
            Self::LoadModel(spec) => write!(f, "load model {} on sub-cluster {}", spec.name, spec.subcluster),
            Self::UnloadModel { name } => write!(f, "unload model {name}"),
            Self::ChangeModel { name, slo_ns, policy, value } => {
                write!(f, "change model {name}: {}", Changes { slo_ns: *slo_ns, policy: *policy, value: *value })
            }
            Self::SetTraffic { model, traffic } => write!(f, "split traffic of model {model}: {traffic}"),
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
            Self::ReviewPlan { plan, approve: true } => write!(f, "approve plan {plan}"),
            Self::ReviewPlan { plan, approve: false } => write!(f, "refuse plan {plan}"),
            Self::RemoveFrontend { frontend } => write!(f, "remove frontend {frontend}"),
            // By number: the words are part of the state, on replicas of every release.
            Self::RaiseLevel { level } => write!(f, "finish the upgrade to level {}", level.get()),
            Self::SetPolicy { subcluster, policy } => {
                let (kept, cut) = policy.split_at(policy.floor_char_boundary(POLICY_WORDS_BYTES_MAX));
                let dots = if cut.is_empty() { "" } else { "…" };
                write!(f, "set the policy of sub-cluster {subcluster}: {kept}{dots}")
            }
            Self::LoadPipeline(declaration) => {
                write!(
                    f,
                    "load pipeline {} of {} stages",
                    declaration.versioned().loaded_as(),
                    declaration.stages.len()
                )
            }
            Self::UnloadPipeline { name } => write!(f, "unload pipeline {name}"),
        }
    }
}

/// What of a model changes, for display.
pub(crate) struct Changes {
    pub(crate) slo_ns: Option<u64>,
    pub(crate) policy: Option<ModelPolicy>,
    pub(crate) value: Option<RequestValue>,
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            self.slo_ns.map(|slo| format!("SLO {} ms", Nanos::new(slo).as_millis_f64())),
            self.policy.map(|policy| format!("policy {policy}")),
            self.value.map(|value| format!("value {value}")),
        ];
        let words: Vec<_> = words.into_iter().flatten().collect();
        f.write_str(if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }.as_str())
    }
}

impl fmt::Display for NewReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.node, self.control_addr)
    }
}
