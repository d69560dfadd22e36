//! Snapshots of the whole state: their layout and their files.

pub(crate) mod image;
pub(crate) mod snapshot_store;
