//! `sync_file_range`, with the meaning that sled needs it to have.
//!
//! sled writes in an order that keeps every acknowledged value on the medium: a segment of its file is used again only
//! when what replaces its contents is *stable*. On Linux it takes a write for stable once `sync_file_range` has
//! returned, and that neither empties a device's cache nor makes a file's size durable, by its own manual. After a
//! power cut a segment may then be overwritten and its replacement lost. On other systems sled syncs the file instead.
//!
//! This crate defines the function for the whole program, in front of the C library's, as a sync of the file. It does
//! more than callers ask for, so it is safe for others too; in Symphony only sled calls it.

#[cfg(target_os = "linux")]
mod linux;

/// How often the replacement was called in this process: a crate that relies on it can check that it is in place.
#[must_use]
pub fn calls() -> u64 {
    #[cfg(target_os = "linux")]
    return linux::calls();
    #[cfg(not(target_os = "linux"))]
    return 0;
}

/// A planted bug: the function promises as little as the C library's, from now on and in the whole process.
#[cfg(feature = "crash-suite")]
pub fn promise_nothing() {
    #[cfg(target_os = "linux")]
    linux::promise_nothing();
}
