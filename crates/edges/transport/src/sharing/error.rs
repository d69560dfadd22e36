//! Errors of shared inputs.

use std::io;

use symphony_shared_memory::PoolError;

/// Why inputs cannot be shared.
#[derive(Debug, thiserror::Error)]
pub enum SharingError {
    /// There is no memory for them.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// There is no socket over which to hand it out.
    #[error("no socket for shared memory: {0}")]
    Socket(#[from] io::Error),
    /// There is no RDMA.
    #[error("no RDMA: {0}")]
    Rdma(String),
}
