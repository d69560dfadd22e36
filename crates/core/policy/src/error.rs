//! Why a text is not a policy, in words for its author.

use std::borrow::Cow;
use std::fmt;

/// A rejected value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The key below the policy, with its dot: `.drop.window`; empty for the policy itself.
    pub below: Cow<'static, str>,
    /// The value or range that was expected.
    pub expected: Cow<'static, str>,
    /// What was found.
    pub got: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = self.below.strip_prefix('.') {
            write!(f, "key `{key}`: ")?;
        }
        write!(f, "expected {}, got {}", self.expected, self.got)
    }
}

/// A text is not a policy, or not one that is allowed in this place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// It is neither a name nor a readable table.
    #[error("{0}; a policy is its name, or a table such as {{ name = \"symphony\", drop = {{ window = 0.75 }} }}")]
    Text(String),
    /// A value is invalid.
    #[error("{0}")]
    Value(Refused),
}
