//! Ids of operators' commands, so that a command without an answer can be repeated.

use symphony_transport::{ControlError, fresh_operation_id};
use symphony_types::OperationId;

use crate::cli::OperationArgs;
use crate::exit::bad_input;

impl OperationArgs {
    /// The given id, or a fresh one.
    pub(crate) fn id(&self) -> OperationId {
        self.operation_id.unwrap_or_else(fresh_operation_id)
    }
}

/// Advice if the cluster does not answer.
pub(crate) const STALE_HINT: &str =
    ". If too few replicas are up to agree on anything, `symphony get members --stale` says what one of them knows";

/// Advice if the cluster could not be asked.
pub(crate) fn asked(error: ControlError) -> anyhow::Error {
    match error {
        error @ ControlError::Unreachable { .. } => anyhow::anyhow!("{error}{STALE_HINT}"),
        other => other.into(),
    }
}

/// Advice if the command was refused or its fate is unknown.
pub(crate) fn not_done(id: OperationId, error: ControlError) -> anyhow::Error {
    match error {
        ControlError::Refused(status) => bad_input(status.message()),
        error @ ControlError::Unreachable { .. } => unknown(id, &format!("{error}{STALE_HINT}")),
        other => other.into(),
    }
}

/// Advice if the fate of the command is unknown.
pub(crate) fn unknown(id: OperationId, error: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "{error}. It may have been done, or may be yet: give the same command with --operation-id {id}, and it is done once"
    )
}
