//! Operators' operations in a view.

use symphony_types::OperationId;

use super::ViewError;
use crate::control as pb;

/// An operation of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationView {
    /// Its place in the log.
    pub index: u64,
    /// Names it.
    pub id: OperationId,
    /// Role and name in the caller's certificate; `insecure` on a plaintext port.
    pub actor: String,
    /// Wall clock of the replica that was asked, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// The requested action, as text.
    pub what: String,
    /// Why nothing was done; none if it was.
    pub refusal: Option<String>,
}

impl TryFrom<pb::Operation> for OperationView {
    type Error = ViewError;
    fn try_from(operation: pb::Operation) -> Result<Self, ViewError> {
        let pb::Operation { index, id, actor, at_unix_ms, what, refusal } = operation;
        let id = id.parse().map_err(|source| ViewError::Operation { index, source })?;
        let refusal = Some(refusal).filter(|refusal| !refusal.is_empty());
        Ok(Self { index, id, actor, at_unix_ms, what, refusal })
    }
}

impl From<&OperationView> for pb::Operation {
    fn from(operation: &OperationView) -> Self {
        Self {
            index: operation.index,
            id: operation.id.to_string(),
            actor: operation.actor.clone(),
            at_unix_ms: operation.at_unix_ms,
            what: operation.what.clone(),
            refusal: operation.refusal.clone().unwrap_or_default(),
        }
    }
}
