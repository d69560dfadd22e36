//! Validation of commands without the state.

use std::collections::BTreeSet;

use symphony_policy::{POLICY_TEXT_BYTES_MAX, is_policy_name};
use symphony_replicated::InvalidField;
use symphony_replicated::fields::{address, count, invalid, name, text};
use symphony_types::{BootId, Level, MODEL_CUTS_MAX, NodeId, VersionedName};

use crate::command::Command;
use crate::epoch_plan::PlanProposal;
use crate::limits::{
    ERROR_BYTES_MAX, GPUS_PER_BACKEND_MAX, PLAN_LEFT_ALONE_MAX, PLAN_MOVES_MAX, PLAN_WORDS_BYTES_MAX,
    POLICIES_KNOWN_MAX,
};
use crate::operation::{Action, Operation};
use crate::refusal::Refusal;
use crate::state::HolderState;

impl Command {
    /// Validates a command before it enters the log, as far as that is possible without the state: a command that
    /// cannot succeed need not enter. Limits that earlier releases did not have are checked here, too.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] with the field, what was found and what was expected.
    pub fn validate(&self) -> Result<(), Refusal> {
        Ok(new_command(self)?)
    }
}

pub(crate) fn command(command: &Command) -> Result<(), InvalidField> {
    match command {
        Command::RegisterNode(r) => {
            node(r.node)?;
            boot(r.boot)?;
            address("control_addr", &r.control_addr)?;
            address("dispatch_addr", &r.dispatch_addr)?;
            address("beat_addr", &r.beat_addr)?;
            if r.disk == 0 { Err(invalid("disk", "0; expected the number of the replica's disk")) } else { Ok(()) }
        }
        Command::NodeDown { node: id, boot: boot_id, .. } => node(*id).and(boot(*boot_id)),
        Command::RegisterBackend(r) => {
            name("name", &r.name)?;
            boot(r.boot)?;
            address("exec_addr", &r.exec_addr)?;
            name("subcluster", &r.subcluster)?;
            name("executor", &r.executor)?;
            count("gpus", r.gpus.len(), 1..=GPUS_PER_BACKEND_MAX)?;
            r.gpus.iter().try_for_each(|gpu| name("gpus.kind", &gpu.kind))
        }
        Command::BackendDown { boot: boot_id, .. } => boot(*boot_id),
        Command::RegisterFrontend(r) => {
            name("name", &r.name)?;
            boot(r.boot)?;
            address("data_addr", &r.data_addr)?;
            address("console_addr", &r.console_addr)
        }
        Command::ReportModel { boot: boot_id, state, .. } => {
            boot(*boot_id)?;
            match state {
                HolderState::Ready => Ok(()),
                HolderState::Failed(error) => text("error", error, 0..=ERROR_BYTES_MAX),
            }
        }
        Command::CancelHandover { .. } => Ok(()),
        Command::Leave { boot: boot_id, .. }
        | Command::ReportDrained { boot: boot_id, .. }
        | Command::ForgetFrontend { boot: boot_id, .. } => boot(*boot_id),
        Command::BeginHandover { to: id, boot: boot_id, .. }
        | Command::CompleteHandover { node: id, boot: boot_id, .. }
        | Command::CedeLead { node: id, boot: boot_id, .. }
        | Command::PolicyFailed { node: id, boot: boot_id, .. } => node(*id).and(boot(*boot_id)),
        Command::KnowPolicies { node: id, boot: boot_id, names } => {
            node(*id).and(boot(*boot_id))?;
            count("names", names.len(), 0..=POLICIES_KNOWN_MAX)?;
            match names.iter().find(|name| !is_policy_name(name)) {
                Some(name) => Err(invalid("names", &format!("{name:?}; expected names of policies"))),
                None => Ok(()),
            }
        }
        Command::ReportCuts { boot: boot_id, cuts, .. } => {
            boot(*boot_id)?;
            count("cuts", cuts.len(), 0..=MODEL_CUTS_MAX)?;
            match cuts.iter().collect::<BTreeSet<_>>().len() == cuts.len() {
                true => Ok(()),
                false => Err(invalid("cuts", "one twice; expected each once")),
            }
        }
        Command::ProposePlan(proposal) => plan(proposal),
        Command::FinishMove { .. } => Ok(()),
        Command::CancelMove { reason, .. } => text("reason", reason, 0..=ERROR_BYTES_MAX),
        Command::Operate(request) => operation(request),
        Command::SetSplit { pipeline, split, .. } => {
            name("pipeline", pipeline)?;
            crate::pipelines::check_split(split)
        }
    }
}

/// Checks only for commands that are not yet in the log. Limits that were introduced later belong here: logs and
/// snapshots of earlier releases may exceed them, and every replica must apply those as agreed.
fn new_command(new: &Command) -> Result<(), InvalidField> {
    command(new)?;
    match new {
        Command::Operate(Operation { action: Action::LoadModel(spec), .. }) => spec.validate_new(),
        _ => Ok(()),
    }
}

fn operation(operation: &Operation) -> Result<(), InvalidField> {
    if operation.id.get() == 0 {
        return Err(invalid("operation_id", "0; expected 128 random bits"));
    }
    name("actor", &operation.actor)?;
    match &operation.action {
        Action::LoadModel(spec) => spec.validate(),
        Action::UnloadModel { name: model } => name("name", model),
        Action::ChangeModel { name: model, .. } => name("name", model),
        Action::SetTraffic { model, traffic } => {
            name("model", model)?;
            traffic.validate()
        }
        Action::SetDuty { .. } | Action::ReviewPlan { .. } | Action::RemoveFrontend { .. } => Ok(()),
        Action::SetPolicy { subcluster, policy } => {
            name("subcluster", subcluster)?;
            text("policy", policy, 1..=POLICY_TEXT_BYTES_MAX)
        }
        Action::LoadPipeline(declaration) => {
            name("name", &declaration.name)?;
            if !VersionedName::is_base_name(&declaration.name) {
                return Err(invalid("name", &format!("{:?}; expected a name without a version", declaration.name)));
            }
            declaration.validate().map(drop).map_err(|refused| {
                let reason = format!("expected {}, got {}", refused.expected, refused.got);
                invalid(&refused.key, &reason)
            })
        }
        Action::UnloadPipeline { name: pipeline } => name("name", pipeline),
        Action::RaiseLevel { level } if level.is_known() => Ok(()),
        Action::RaiseLevel { level } => {
            let (oldest, newest) = (Level::OLDEST.get(), Level::NEWEST.get());
            Err(invalid("level", &format!("{level}; this release knows {oldest} to {newest}")))
        }
        Action::ProposePlan(proposal) => plan(proposal),
        Action::ChangeReplicas { add, remove } => {
            let (new, gone) = (add.as_ref().map(|new| new.node), *remove);
            if new == gone {
                let id = |node: Option<NodeId>| node.map_or(0, NodeId::get);
                let reason = format!("{}, remove: {}; expected two different ids, or one and 0", id(new), id(gone));
                return Err(invalid("add", &reason));
            }
            new.into_iter().chain(gone).try_for_each(node)?;
            add.iter().try_for_each(|new| address("add_control_addr", &new.control_addr))
        }
    }
}

fn plan(proposal: &PlanProposal) -> Result<(), InvalidField> {
    text("cause", &proposal.cause, 0..=PLAN_WORDS_BYTES_MAX)?;
    text("summary", &proposal.summary, 0..=PLAN_WORDS_BYTES_MAX)?;
    let moves = &proposal.moves;
    count("moves", moves.len(), usize::from(proposal.left_alone.is_empty())..=PLAN_MOVES_MAX)?;
    count("left_alone", proposal.left_alone.len(), 0..=PLAN_LEFT_ALONE_MAX)?;
    proposal.left_alone.iter().try_for_each(|left| text("left_alone.reason", &left.reason, 0..=ERROR_BYTES_MAX))?;
    let mut seen = BTreeSet::new();
    for wanted in moves {
        if wanted.from == wanted.to {
            return Err(invalid("moves", &format!("{wanted}; expected two different sub-clusters")));
        }
        if !seen.insert(wanted.what) {
            return Err(invalid("moves", &format!("{} twice; expected at most one move of each", wanted.what)));
        }
    }
    Ok(())
}

fn node(node: NodeId) -> Result<(), InvalidField> {
    if node.get() == 0 { Err(invalid("node", "0; ids start at 1")) } else { Ok(()) }
}

fn boot(boot: BootId) -> Result<(), InvalidField> {
    if boot.get() == 0 { Err(invalid("boot_id", "0; expected the fresh number of a boot")) } else { Ok(()) }
}
