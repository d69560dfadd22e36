//! The format of what replicas agree on: commands, replies and the state share it.

use symphony_types::Level;

/// Magic bytes of this crate's encodings.
pub(crate) const MAGIC: &str = "SYCS";

/// The newest version of commands, replies and the state; each level of a cluster has its own.
pub(crate) const VERSION: u16 = Level::NEWEST.formats().state;

/// The oldest version that is read, since a log may hold it.
pub(crate) const OLDEST: u16 = Level::OLDEST_READ.formats().state;
