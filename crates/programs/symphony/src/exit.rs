//! Exit codes: 0 done, 1 failed, 2 bad usage or bad input, 3 a policy hung.

use std::fmt;
use std::process::ExitCode;

/// A policy that this program adds did not answer: no result, and the process is ended as it is.
pub(crate) const HUNG_POLICY: i32 = 3;

/// Marks an error as the caller's mistake: exit code 2.
#[derive(Debug)]
struct BadInput(String);

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// An error that names file, key and what was expected.
pub(crate) fn bad_input(message: impl fmt::Display) -> anyhow::Error {
    anyhow::Error::new(BadInput(message.to_string()))
}

/// The error with its causes, each once: many errors already include the text of their cause.
pub(crate) fn words(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |message, cause| match message.as_str() {
        "" => cause,
        known if known.contains(&cause) => message,
        _ => format!("{message}: {cause}"),
    })
}

/// Prints the error with its causes and picks the exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("symphony: {}", words(error));
    if error.chain().any(|cause| cause.is::<BadInput>()) { ExitCode::from(2) } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_an_error_names_itself_is_not_said_again() {
        let cause = || std::io::Error::other("the disk is full");
        assert_eq!(
            words(&anyhow::Error::new(cause()).context("cannot write m.log")),
            "cannot write m.log: the disk is full"
        );
        let named = anyhow::Error::new(cause()).context("cannot write m.log: the disk is full");
        assert_eq!(words(&named), "cannot write m.log: the disk is full");
    }
}
