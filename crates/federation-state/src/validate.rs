//! What a command may say at all, whatever the state.

use crate::command::{Action, Command, Operation, WantedMove};
use crate::limits::{
    CONTROLS_MAX, KINDS_MAX, MOVES_PER_COMMAND_MAX, NAME_BYTES_MAX, REASON_BYTES_MAX, WANTED_MRPS_MAX,
};
use crate::refusal::Refusal;

pub(crate) fn command(command: &Command) -> Result<(), Refusal> {
    match command {
        Command::SeeCluster { name: cluster, control, kinds } => {
            name("name", cluster)?;
            count("control", control.len(), 1, CONTROLS_MAX)?;
            count("kinds", kinds.len(), 0, KINDS_MAX)?;
            control
                .iter()
                .try_for_each(|address| text("control", address, 1, symphony_cluster_state::ADDRESS_BYTES_MAX))?;
            kinds.keys().try_for_each(|kind| name("kinds", kind))
        }
        Command::ClusterLost { name: cluster, .. } | Command::ClusterBack { name: cluster, .. } => {
            name("name", cluster)
        }
        Command::BeginMoves { moves, .. } => wanted(moves),
        Command::Unplaced { model, reason, .. } | Command::GiveUp { model, reason, .. } => {
            name("model", model).and_then(|()| text("reason", reason, 1, REASON_BYTES_MAX))
        }
        Command::Loaded { model, .. } => name("model", model),
        Command::CopyGone { model, cluster, .. } => name("model", model).and_then(|()| name("cluster", cluster)),
        Command::Operate(asked) => operation(asked),
    }
}

/// What only commands that do not yet stand in the log are asked, as in a cluster.
pub(crate) fn new_command(new: &Command) -> Result<(), Refusal> {
    command(new)?;
    match new {
        Command::Operate(Operation { action: Action::LoadModel { spec, .. }, .. }) => {
            spec.validate_new().map_err(of_spec)
        }
        _ => Ok(()),
    }
}

fn of_spec(refusal: symphony_cluster_state::Refusal) -> Refusal {
    match refusal {
        symphony_cluster_state::Refusal::Invalid { field, reason } => Refusal::Invalid { field, reason },
        other => invalid("spec", &other.to_string()),
    }
}

fn operation(operation: &Operation) -> Result<(), Refusal> {
    if operation.id.get() == 0 {
        return Err(invalid("operation_id", "0; expected 128 random bits"));
    }
    name("actor", &operation.actor)?;
    match &operation.action {
        Action::LoadModel { spec, wanted_mrps, cluster } => {
            spec.validate().map_err(of_spec)?;
            if *wanted_mrps > WANTED_MRPS_MAX {
                let most = WANTED_MRPS_MAX / 1000;
                return Err(invalid("wanted_rps", &format!("{}; expected at most {most}", wanted_mrps / 1000)));
            }
            if cluster.is_empty() { Ok(()) } else { name("cluster", cluster) }
        }
        Action::UnloadModel { name: model } => name("name", model),
        Action::Move { moves, .. } => wanted(moves),
    }
}

fn wanted(moves: &[WantedMove]) -> Result<(), Refusal> {
    count("moves", moves.len(), 1, MOVES_PER_COMMAND_MAX)?;
    moves.iter().try_for_each(|wanted| {
        name("moves.model", &wanted.model)?;
        name("moves.to", &wanted.to)?;
        name("moves.subcluster", &wanted.subcluster)?;
        wanted.from.as_ref().map_or(Ok(()), |from| name("moves.from", from))
    })
}

fn invalid(field: &str, reason: &str) -> Refusal {
    Refusal::Invalid { field: field.to_owned(), reason: reason.to_owned() }
}

fn count(field: &str, got: usize, min: usize, max: usize) -> Result<(), Refusal> {
    if (min..=max).contains(&got) { Ok(()) } else { Err(invalid(field, &format!("{got}; expected {min} to {max}"))) }
}

fn name(field: &str, value: &str) -> Result<(), Refusal> {
    text(field, value, 1, NAME_BYTES_MAX)?;
    if value.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(invalid(field, &format!("{value:?} has blanks or control characters; expected none")));
    }
    Ok(())
}

fn text(field: &str, value: &str, bytes_min: usize, bytes_max: usize) -> Result<(), Refusal> {
    let bytes = value.len();
    if (bytes_min..=bytes_max).contains(&bytes) {
        return Ok(());
    }
    Err(invalid(field, &format!("{bytes} bytes; expected {bytes_min} to {bytes_max}")))
}
