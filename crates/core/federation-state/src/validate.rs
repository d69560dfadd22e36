//! Validation of commands without the state.

use symphony_replicated::fields::{count, invalid, name, text};
use symphony_replicated::{ADDRESS_BYTES_MAX, InvalidField};

use crate::command::{Action, Command, HomeMove, Operation};
use crate::limits::{CONTROLS_MAX, KINDS_MAX, MOVES_PER_COMMAND_MAX, REASON_BYTES_MAX, WANTED_MRPS_MAX};
use crate::refusal::Refusal;

impl Command {
    /// Validates a command before it enters the log: everything that needs no state, and limits that earlier releases
    /// did not have.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] with the field, what was found and what was expected.
    pub fn validate(&self) -> Result<(), Refusal> {
        Ok(new_command(self)?)
    }
}

pub(crate) fn command(command: &Command) -> Result<(), InvalidField> {
    match command {
        Command::SeeCluster { name: cluster, control, kinds } => {
            name("name", cluster)?;
            count("control", control.len(), 1..=CONTROLS_MAX)?;
            count("kinds", kinds.len(), 0..=KINDS_MAX)?;
            control.iter().try_for_each(|address| text("control", address, 1..=ADDRESS_BYTES_MAX))?;
            kinds.keys().try_for_each(|kind| name("kinds", kind))
        }
        Command::ClusterLost { name: cluster, .. } | Command::ClusterBack { name: cluster, .. } => {
            name("name", cluster)
        }
        Command::BeginMoves { moves, .. } => wanted(moves),
        Command::Unplaced { model, reason, .. } | Command::GiveUp { model, reason, .. } => {
            name("model", model).and_then(|()| text("reason", reason, 1..=REASON_BYTES_MAX))
        }
        Command::Loaded { model, .. } => name("model", model),
        Command::CopyGone { model, cluster, .. } => name("model", model).and_then(|()| name("cluster", cluster)),
        Command::Operate(request) => operation(request),
        Command::SeeReplica { replica: 0 } => Err(invalid("replica", "0; expected the id of a replica, from 1")),
        Command::SeeReplica { .. } => Ok(()),
    }
}

/// Checks only for commands that are not yet in the log, as in a cluster.
fn new_command(new: &Command) -> Result<(), InvalidField> {
    command(new)?;
    match new {
        Command::Operate(Operation { action: Action::LoadModel { spec, .. }, .. }) => spec.validate_new(),
        _ => Ok(()),
    }
}

fn operation(operation: &Operation) -> Result<(), InvalidField> {
    if operation.id.get() == 0 {
        return Err(invalid("operation_id", "0; expected 128 random bits"));
    }
    name("actor", &operation.actor)?;
    match &operation.action {
        Action::LoadModel { spec, wanted_mrps, cluster } => {
            spec.validate()?;
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

fn wanted(moves: &[HomeMove]) -> Result<(), InvalidField> {
    count("moves", moves.len(), 1..=MOVES_PER_COMMAND_MAX)?;
    moves.iter().try_for_each(|wanted| {
        name("moves.model", &wanted.model)?;
        name("moves.to", &wanted.to)?;
        name("moves.subcluster", &wanted.subcluster)?;
        wanted.from.as_ref().map_or(Ok(()), |from| name("moves.from", from))
    })
}
