//! Operators' operations in a view.

use symphony_types::OperationId;

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
