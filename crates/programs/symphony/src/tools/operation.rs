//! How operators' commands are named, so that one without an answer may be given again.

use symphony_transport::{ControlError, fresh_operation_id};
use symphony_types::OperationId;

use crate::cli::OperationArgs;
use crate::exit::bad_input;

impl OperationArgs {
    /// The id that was given, or a fresh one.
    pub(crate) fn id(&self) -> OperationId {
        self.operation_id.unwrap_or_else(fresh_operation_id)
    }
}

/// What to tell the operator if the command was refused, or nobody knows whether it was done.
pub(crate) fn not_done(id: OperationId, error: ControlError) -> anyhow::Error {
    match error {
        ControlError::Refused(status) => bad_input(status.message()),
        error @ ControlError::Unreachable { .. } => unknown(id, &error.to_string()),
        other => other.into(),
    }
}

/// What to tell the operator if nobody knows whether it was done.
pub(crate) fn unknown(id: OperationId, error: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "{error}; it may have been done, or may be yet: give the same command with --operation-id {id}, and it is done once"
    )
}
