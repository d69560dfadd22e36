//! Shared memory between a frontend and the backends of its host: access, and exchange of descriptors.

mod error;
mod inputs;
mod pair;
#[cfg(test)]
pub(crate) mod tests;

pub use error::SharingError;
pub(crate) use inputs::PendingOffer;
pub use inputs::{SharedInputs, can_share, can_use_rdma};
pub(crate) use pair::SharedPair;

/// The longest input or result that is read from shared memory, in bytes: 256 MiB, more than any request may have.
pub(crate) const SHARED_PAYLOAD_BYTES_MAX: usize = 256 << 20;
