//! Errors that end a run early.

use std::fmt;

use anyhow::Error;

/// The cause of an error in a round, as its context. Without it the cluster did not come back, or a process died: I8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureCause {
    /// Nothing in the system: chaos could not do what the scenario asks for.
    Chaos,
    /// A replica runs on over a disk that lacks what it acknowledged.
    Forgot,
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chaos => "chaos itself failed",
            Self::Forgot => "forgot",
        })
    }
}

/// Names chaos itself as the cause of an error, unless the error has a cause already.
pub(crate) fn chaos_failed(error: impl Into<Error>) -> Error {
    let error: Error = error.into();
    if error.is::<FailureCause>() { error } else { error.context(FailureCause::Chaos) }
}

/// An error that ends a run before its last round, or at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunFailure {
    pub(crate) cause: Option<FailureCause>,
    /// When, and the error.
    pub(crate) words: String,
}

impl RunFailure {
    /// By this error, at that time.
    pub(crate) fn of(when: impl fmt::Display, error: &Error) -> Self {
        Self { cause: error.downcast_ref::<FailureCause>().copied(), words: format!("{when}: {error:#}") }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn an_error_keeps_its_first_cause_whatever_is_said_about_it() {
        let io = || std::io::Error::new(std::io::ErrorKind::StorageFull, "no room");
        let own = RunFailure::of("round 2", &chaos_failed(chaos_failed(io()).context("cannot copy")));
        let words = "round 2: cannot copy: chaos itself failed: no room";
        assert_eq!(own, RunFailure { cause: Some(FailureCause::Chaos), words: words.into() });
        let forgot = chaos_failed(anyhow!("n2 runs on").context(FailureCause::Forgot));
        let words = "round 1: forgot: n2 runs on";
        let expected = RunFailure { cause: Some(FailureCause::Forgot), words: words.into() };
        assert_eq!(RunFailure::of("round 1", &forgot), expected);
        assert_eq!(RunFailure::of("the end", &anyhow!(io())).cause, None, "an I/O error alone may be the cluster's");
    }
}
