//! Why a run ends before its last round.

use std::fmt;

use anyhow::Error;

/// What an error in a round shows, as its context. Without it the cluster did not come back, or a process died: I8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Nothing of the system: chaos could not do what the scenario asks for.
    Chaos,
    /// A replica runs on over a disk that lacks what it acknowledged.
    Forgot,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chaos => "chaos itself failed",
            Self::Forgot => "forgot",
        })
    }
}

/// Marks what the operating system refused to do for chaos, once.
pub(crate) fn chaos_failed(error: impl Into<Error>) -> Error {
    let error: Error = error.into();
    if error.is::<Mark>() { error } else { error.context(Mark::Chaos) }
}

/// Why a run ended before its last round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Breakdown {
    pub(crate) mark: Option<Mark>,
    /// When, and the error.
    pub(crate) words: String,
}

impl Breakdown {
    /// By this error, at that time.
    pub(crate) fn of(when: impl fmt::Display, error: &Error) -> Self {
        Self { mark: error.downcast_ref::<Mark>().copied(), words: format!("{when}: {error:#}") }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn an_error_keeps_its_first_mark_whatever_is_said_about_it() {
        let io = || std::io::Error::new(std::io::ErrorKind::StorageFull, "no room");
        let own = Breakdown::of("round 2", &chaos_failed(chaos_failed(io()).context("cannot copy")));
        let words = "round 2: cannot copy: chaos itself failed: no room";
        assert_eq!(own, Breakdown { mark: Some(Mark::Chaos), words: words.into() });
        let forgot = chaos_failed(anyhow!("n2 runs on").context(Mark::Forgot));
        let words = "round 1: forgot: n2 runs on";
        assert_eq!(Breakdown::of("round 1", &forgot), Breakdown { mark: Some(Mark::Forgot), words: words.into() });
        assert_eq!(Breakdown::of("the end", &anyhow!(io())).mark, None, "an I/O error alone may be the cluster's");
    }
}
