//! Proposals to the group.

use symphony_consensus::{ControlGroup, ProposeError, ReadError};
use symphony_federation_state::{Command, LogEntry, Refusal, Reply, decode_outcome};
use symphony_types::NodeId;
use tonic::Status;

/// Why a command was not committed, or a read not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("this replica does not lead the federation; {}", leader(.0))]
    NotLeader(Option<NodeId>),
    #[error("not agreed on: {0}")]
    NotAgreed(String),
}

fn leader(leader: &Option<NodeId>) -> String {
    leader.map_or_else(|| "no leader is known".to_owned(), |leader| format!("{leader} does"))
}

impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        let words = error.to_string();
        match error {
            // Another replica, or this one later, may succeed.
            CallError::NotLeader(_) | CallError::NotAgreed(_) => Self::unavailable(words),
            CallError::Refused(refusal) => match refusal {
                Refusal::Invalid { .. } | Refusal::OperationReused { .. } => Self::invalid_argument(words),
                Refusal::UnknownCluster { .. } | Refusal::UnknownModel { .. } => Self::not_found(words),
                Refusal::NameTaken { .. } => Self::already_exists(words),
                Refusal::Limit { .. } => Self::resource_exhausted(words),
                _ => Self::failed_precondition(words),
            },
        }
    }
}

impl From<ReadError> for CallError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NotLeader { leader } => Self::NotLeader(leader),
            other => Self::NotAgreed(other.to_string()),
        }
    }
}

/// A command that was committed and applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    /// Its log index.
    pub(crate) index: u64,
    pub(crate) reply: Reply,
}

/// Proposes here; only the leader can. The command is applied here on return.
pub(crate) async fn propose(group: &ControlGroup, at_unix_ms: u64, command: Command) -> Result<Agreed, CallError> {
    command.validate()?;
    let bytes = LogEntry { at_unix_ms, command }.encode().map_err(|error| CallError::NotAgreed(error.to_string()))?;
    let proposed = group.propose(bytes).await.map_err(|error| match error {
        ProposeError::NotLeader { leader } => CallError::NotLeader(leader),
        other => CallError::NotAgreed(other.to_string()),
    })?;
    let outcome = decode_outcome(&proposed.response).map_err(|error| CallError::NotAgreed(error.to_string()))?;
    Ok(Agreed { index: proposed.index, reply: outcome? })
}
