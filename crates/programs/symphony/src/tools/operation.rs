//! Ids of operators' commands, so that a command without an answer can be repeated.

use std::fmt;

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

/// A sentence about why the cluster does not answer, and advice.
pub(crate) fn with_stale_hint(error: &dyn fmt::Display) -> String {
    let hint =
        "If too few replicas are up to agree on anything, `symphony get members --stale` says what one of them knows";
    format!("{} {hint}", sentence(&error.to_string()))
}

/// With a mark at its end; some errors are questions.
fn sentence(words: &str) -> String {
    if words.ends_with(['.', '?', '!']) { words.to_owned() } else { format!("{words}.") }
}

/// Advice if the cluster could not be asked.
pub(crate) fn query_error(error: ControlError) -> anyhow::Error {
    match error {
        error @ ControlError::Unreachable { .. } => anyhow::anyhow!(with_stale_hint(&error)),
        other => other.into(),
    }
}

/// Advice if the command was refused or its fate is unknown.
pub(crate) fn not_done(id: OperationId, error: ControlError) -> anyhow::Error {
    match error {
        ControlError::Refused(status) => bad_input(status.message()),
        error @ ControlError::Unreachable { .. } => unknown(id, &with_stale_hint(&error)),
        other => other.into(),
    }
}

/// Advice if the fate of the command is unknown.
pub(crate) fn unknown(id: OperationId, error: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "{} It may have been done, or may be yet: give the same command with --operation-id {id}, and it is done once",
        sentence(error)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_not_followed_by_a_full_stop() {
        let message = with_stale_hint(&"are the certificates those of another cluster?");
        assert!(message.starts_with("are the certificates those of another cluster? If too few"), "{message}");
        let message = unknown(OperationId::new(1), "no answer").to_string();
        assert!(message.starts_with("no answer. It may have been done"), "{message}");
    }
}
