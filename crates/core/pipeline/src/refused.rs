//! Why a pipeline is invalid, in words for its author.

use std::fmt;

/// A value that a pipeline cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key `{key}`: expected {expected}, got {got}")]
pub struct Refused {
    /// Dotted path of the key, as in the file: `edge.2.gamma`.
    pub key: String,
    /// The value or range that was expected.
    pub expected: String,
    /// What was found.
    pub got: String,
}

impl Refused {
    pub(crate) fn new(key: impl Into<String>, expected: impl Into<String>, got: impl fmt::Display) -> Self {
        Self { key: key.into(), expected: expected.into(), got: got.to_string() }
    }
}
