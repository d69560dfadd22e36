//! Errors of a federation's replica.

/// Why a replica of a federation did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The group did not start.
    #[error(transparent)]
    Group(#[from] symphony_consensus::StartError),
}
