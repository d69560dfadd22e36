//! The durable log: frames on a storage engine, one writer thread, recovery.

mod chain;
#[cfg(test)]
mod contract;
pub(crate) mod engine;
#[cfg(feature = "crash-suite")]
pub(crate) mod faulty;
pub(crate) mod frame;
mod lock_wait;
pub(crate) mod memory;
pub(crate) mod pulse;
pub(crate) mod recovery;
pub(crate) mod redb;
pub(crate) mod simulated;
pub(crate) mod sled;
pub(crate) mod store;
pub(crate) mod witness;
pub(crate) mod writer;
