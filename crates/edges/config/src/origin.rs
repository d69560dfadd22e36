//! Where a configuration comes from, and how long it may be.

use std::fmt;
use std::path::PathBuf;

/// The longest configuration that is read, in bytes.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Where a key came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file of this path.
    File(PathBuf),
    /// An environment variable.
    Env(String),
    /// An override on the command line.
    Flag(String),
    /// Nothing but [`DEFAULTS`](crate::DEFAULTS).
    Defaults,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Env(variable) => write!(f, "environment variable {variable}"),
            Self::Flag(flag) => write!(f, "override `{flag}`"),
            Self::Defaults => f.write_str("the default configuration"),
        }
    }
}
