//! What operators asked for.

use symphony_types::OperationId;

/// What an operator asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationView {
    /// Its place in the log.
    pub index: u64,
    /// Names it.
    pub id: OperationId,
    /// Role and name in the certificate of who asked; `insecure` on a plaintext port.
    pub actor: String,
    /// Wall clock of the replica that was asked, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// What was asked for, in words.
    pub what: String,
    /// Why nothing was done; none if it was.
    pub refusal: Option<String>,
}
