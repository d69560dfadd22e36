//! What a command may say at all, whatever the state.

use std::collections::BTreeSet;

use symphony_types::{BootId, LatencyProfile, Nanos, NodeId, SLO_MAX, TensorSpec};

use crate::command::{Command, PlanProposal};
use crate::limits::{
    ADDRESS_BYTES_MAX, ERROR_BYTES_MAX, GPUS_PER_BACKEND_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, PLAN_LEFT_ALONE_MAX,
    PLAN_MOVES_MAX, PLAN_WORDS_BYTES_MAX, PROFILE_KINDS_MAX, TENSOR_DIMENSIONS_MAX, TENSOR_ITEM_BYTES_MAX, TENSORS_MAX,
};
use crate::operation::{Action, Operation};
use crate::refusal::Refusal;
use crate::spec::{ModelSource, ModelSpec};
use crate::state::ReplicaState;

pub(crate) fn command(command: &Command) -> Result<(), Refusal> {
    match command {
        Command::RegisterNode(r) => {
            node(r.node)?;
            boot(r.boot)?;
            address("control_addr", &r.control_addr)?;
            address("dispatch_addr", &r.dispatch_addr)?;
            address("beat_addr", &r.beat_addr)?;
            if r.disk == 0 { Err(invalid("disk", "0; expected the number of the replica's disk")) } else { Ok(()) }
        }
        Command::NodeDown { node: id, boot: life, .. } => node(*id).and(boot(*life)),
        Command::RegisterBackend(r) => {
            name("name", &r.name)?;
            boot(r.boot)?;
            address("exec_addr", &r.exec_addr)?;
            name("subcluster", &r.subcluster)?;
            name("executor", &r.executor)?;
            count("gpus", r.gpus.len(), 1, GPUS_PER_BACKEND_MAX)?;
            r.gpus.iter().try_for_each(|gpu| name("gpus.kind", &gpu.kind))
        }
        Command::BackendDown { boot: life, .. } => boot(*life),
        Command::RegisterFrontend(r) => {
            name("name", &r.name)?;
            boot(r.boot)?;
            address("data_addr", &r.data_addr)?;
            address("console_addr", &r.console_addr)
        }
        Command::ReportModel { boot: life, state, .. } => {
            boot(*life)?;
            match state {
                ReplicaState::Ready => Ok(()),
                ReplicaState::Failed(error) => text("error", error, ERROR_BYTES_MAX),
            }
        }
        Command::CancelHandover { .. } => Ok(()),
        Command::Leave { boot: life, .. }
        | Command::ReportDrained { boot: life, .. }
        | Command::ForgetFrontend { boot: life, .. } => boot(*life),
        Command::BeginHandover { to: id, boot: life, .. }
        | Command::CompleteHandover { node: id, boot: life, .. }
        | Command::CedeLead { node: id, boot: life, .. } => node(*id).and(boot(*life)),
        Command::ProposePlan(proposal) => plan(proposal),
        Command::FinishMove { .. } => Ok(()),
        Command::CancelMove { reason, .. } => text("reason", reason, ERROR_BYTES_MAX),
        Command::Operate(asked) => operation(asked),
    }
}

/// What only commands that do not yet stand in the log are asked. Limits that came later belong here: logs and snapshots of earlier
/// releases may exceed them, and every replica must apply those as they were agreed.
pub(crate) fn new_command(new: &Command) -> Result<(), Refusal> {
    command(new)?;
    match new {
        Command::Operate(Operation { action: Action::LoadModel(spec), .. }) => new_model(spec),
        _ => Ok(()),
    }
}

/// A specification that no state has yet.
pub(crate) fn new_model(spec: &ModelSpec) -> Result<(), Refusal> {
    model(spec)?;
    if spec.slo() > SLO_MAX {
        let (got, most) = (spec.slo_ns.div_ceil(1_000_000), SLO_MAX.get() / 1_000_000);
        return Err(invalid("spec.slo_ns", &format!("{got} ms; expected at most {most} ms")));
    }
    Ok(())
}

fn operation(operation: &Operation) -> Result<(), Refusal> {
    if operation.id.get() == 0 {
        return Err(invalid("operation_id", "0; expected 128 random bits"));
    }
    name("actor", &operation.actor)?;
    match &operation.action {
        Action::LoadModel(spec) => model(spec),
        Action::UnloadModel { name: model } => name("name", model),
        Action::SetDuty { .. } | Action::JudgePlan { .. } | Action::RemoveFrontend { .. } => Ok(()),
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

fn plan(proposal: &PlanProposal) -> Result<(), Refusal> {
    text("cause", &proposal.cause, PLAN_WORDS_BYTES_MAX)?;
    text("summary", &proposal.summary, PLAN_WORDS_BYTES_MAX)?;
    let moves = &proposal.moves;
    count("moves", moves.len(), usize::from(proposal.left_alone.is_empty()), PLAN_MOVES_MAX)?;
    count("left_alone", proposal.left_alone.len(), 0, PLAN_LEFT_ALONE_MAX)?;
    proposal.left_alone.iter().try_for_each(|left| text("left_alone.reason", &left.reason, ERROR_BYTES_MAX))?;
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

pub(crate) fn model(spec: &ModelSpec) -> Result<(), Refusal> {
    name("spec.name", &spec.name)?;
    if !spec.subcluster.is_empty() {
        name("spec.subcluster", &spec.subcluster)?;
    }
    spec.policy.check().map_err(|error| invalid("spec.policy", &error.to_string()))?;
    if spec.slo_ns == 0 {
        return Err(invalid("spec.slo_ns", "0; expected a positive time"));
    }
    if let ModelSource::Onnx(path) = &spec.source {
        text("spec.onnx_path", path, PATH_BYTES_MAX)?;
        if path.is_empty() {
            return Err(invalid("spec.onnx_path", "empty; expected a path that every backend can read"));
        }
    }
    tensors("spec.inputs", &spec.signature.inputs)?;
    tensors("spec.outputs", &spec.signature.outputs)?;
    spec.transforms.check(&spec.signature).map_err(|reason| invalid("spec.transforms", &reason))?;
    count("spec.profiles", spec.profiles.len(), 1, PROFILE_KINDS_MAX)?;
    for (kind, profile) in &spec.profiles {
        name("spec.profiles.gpu_kind", kind)?;
        let table: Vec<_> = profile.latency_ns.iter().map(|&ns| Nanos::new(ns)).collect();
        LatencyProfile::from_table(&table)
            .map_err(|e| invalid("spec.profiles.latency_ns", &format!("GPU kind `{kind}`: {e}")))?;
    }
    Ok(())
}

fn tensors(field: &str, tensors: &[TensorSpec]) -> Result<(), Refusal> {
    count(field, tensors.len(), 0, TENSORS_MAX)?;
    for tensor in tensors {
        name(&format!("{field}.name"), &tensor.name)?;
        let shape = format!("{field}.item_shape");
        count(&shape, tensor.item_shape.len(), 0, TENSOR_DIMENSIONS_MAX)?;
        let width = tensor.data_type.size_bytes() as u64;
        let bytes = tensor.item_shape.iter().try_fold(width, |bytes, &d| bytes.checked_mul(u64::from(d)));
        if !matches!(bytes, Some(1..=TENSOR_ITEM_BYTES_MAX)) {
            let (name, dims) = (&tensor.name, &tensor.item_shape);
            let reason =
                format!("tensor `{name}` of shape {dims:?}; expected 1 to {TENSOR_ITEM_BYTES_MAX} bytes per item");
            return Err(invalid(&shape, &reason));
        }
    }
    Ok(())
}

fn invalid(field: &str, reason: &str) -> Refusal {
    Refusal::Invalid { field: field.to_owned(), reason: reason.to_owned() }
}

fn node(node: NodeId) -> Result<(), Refusal> {
    if node.get() == 0 { Err(invalid("node", "0; ids start at 1")) } else { Ok(()) }
}

fn boot(boot: BootId) -> Result<(), Refusal> {
    if boot.get() == 0 { Err(invalid("boot_id", "0; expected the fresh number of a life")) } else { Ok(()) }
}

/// A name is shown in tables, logs, metric labels and addresses: no blanks, nothing invisible.
fn name(field: &str, value: &str) -> Result<(), Refusal> {
    if value.is_empty() || value.len() > NAME_BYTES_MAX {
        let reason = format!("{} bytes; expected 1 to {NAME_BYTES_MAX}", value.len());
        return Err(invalid(field, &reason));
    }
    if value.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(invalid(field, &format!("{value:?} has blanks or control characters; expected none")));
    }
    Ok(())
}

fn text(field: &str, value: &str, bytes_max: usize) -> Result<(), Refusal> {
    if value.len() > bytes_max {
        return Err(invalid(field, &format!("{} bytes; expected at most {bytes_max}", value.len())));
    }
    Ok(())
}

fn address(field: &str, value: &str) -> Result<(), Refusal> {
    let expected = || invalid(field, &format!("{value:?} is no address; expected host:port"));
    if value.len() > ADDRESS_BYTES_MAX {
        let reason = format!("{} bytes; expected host:port of at most {ADDRESS_BYTES_MAX}", value.len());
        return Err(invalid(field, &reason));
    }
    let (host, port) = value.rsplit_once(':').ok_or_else(expected)?;
    let port: u16 = port.parse().map_err(|_| expected())?;
    if host.is_empty() || port == 0 || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(expected());
    }
    Ok(())
}

fn count(field: &str, got: usize, min: usize, max: usize) -> Result<(), Refusal> {
    if (min..=max).contains(&got) {
        return Ok(());
    }
    Err(invalid(field, &format!("{got} entries; expected {min} to {max}")))
}
