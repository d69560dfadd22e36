//! The durable log: frames on a storage engine, one writer thread, recovery.

#[cfg(test)]
mod contract;
pub(crate) mod engine;
pub(crate) mod frame;
pub(crate) mod memory;
pub(crate) mod recovery;
pub(crate) mod sled;
pub(crate) mod store;
mod writer;
