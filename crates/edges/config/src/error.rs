//! Errors of configurations.

use std::fmt;
use std::path::PathBuf;

use crate::{Origin, Role};

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The text is longer than anything a person would write.
    #[error("{origin} has {bytes} bytes; a configuration has at most {}", crate::CONFIG_BYTES_MAX)]
    TooLong {
        /// Where it came from.
        origin: Origin,
        /// Its length.
        bytes: u64,
    },
    /// The text is not TOML.
    #[error("{origin} is not TOML: {message}")]
    Syntax {
        /// Where it came from.
        origin: Origin,
        /// The parser's message, with line and column.
        message: String,
    },
    /// A key is unknown, or its value has the wrong type.
    #[error("{origin}: {problem}")]
    Key {
        /// Where the key came from.
        origin: Origin,
        /// The defect.
        problem: Problem,
    },
    /// All keys are known, but their values contradict each other.
    #[error("{origin} cannot work for `symphony {role}`:{}", .problems.iter().map(|p| format!("\n  {p}")).collect::<String>())]
    Invalid {
        /// The topmost file, or the defaults if there is none.
        origin: Origin,
        /// The role that it was loaded for.
        role: Role,
        /// Everything that is wrong, not just the first.
        problems: Vec<Problem>,
    },
}

/// An error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key, dotted; elements of lists count from 0.
    pub key: String,
    /// The defect with the values, and what to try.
    pub message: String,
}

impl Problem {
    pub(crate) fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}
