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

/// Where to look when nobody answers for the cluster.
pub(crate) const STALE_HINT: &str =
    ". If too few replicas are up to agree on anything, `symphony get members --stale` says what one of them knows";

/// What to tell the operator if the cluster could not be asked.
pub(crate) fn asked(error: ControlError) -> anyhow::Error {
    match error {
        error @ ControlError::Unreachable { .. } => anyhow::anyhow!("{error}{STALE_HINT}"),
        other => other.into(),
    }
}

/// What to tell the operator if the command was refused, or nobody knows whether it was done.
pub(crate) fn not_done(id: OperationId, error: ControlError) -> anyhow::Error {
    match error {
        ControlError::Refused(status) => bad_input(status.message()),
        error @ ControlError::Unreachable { .. } => unknown(id, &format!("{error}{STALE_HINT}")),
        other => other.into(),
    }
}

/// What to tell the operator if nobody knows whether it was done.
pub(crate) fn unknown(id: OperationId, error: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "{error}. It may have been done, or may be yet: give the same command with --operation-id {id}, and it is done once"
    )
}
