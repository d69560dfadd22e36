//! Why a text is no policy, in words for the person who wrote it.

use std::borrow::Cow;
use std::fmt;

/// A value that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The key below the policy, with its dot: `.drop.window`; empty for the policy itself.
    pub below: Cow<'static, str>,
    /// What would have been right.
    pub expected: &'static str,
    /// What was there.
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

/// A text is no policy that can be used where it was given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// It is neither a name nor a table that can be read.
    #[error("{0}; a policy is its name, or a table such as {{ name = \"symphony\", drop = {{ window = 0.75 }} }}")]
    Text(String),
    /// A value makes no sense.
    #[error("{0}")]
    Value(Refused),
}
