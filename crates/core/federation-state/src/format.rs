//! The format of what replicas agree on: commands, replies and the state share it.

/// Magic bytes of this crate's encodings.
pub(crate) const MAGIC: &str = "SYFS";

/// Incremented whenever the format of a command, a reply or the state changes.
pub(crate) const VERSION: u16 = 5;
