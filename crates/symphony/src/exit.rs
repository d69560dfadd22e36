//! Exit codes (DESIGN section 12): 0 done, 1 failed, 2 bad usage or bad input.

use std::fmt;
use std::process::ExitCode;

/// Marks an error as the caller's: exit code 2.
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

/// Prints the error with its causes and picks the exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("symphony: {error:#}");
    if error.chain().any(|cause| cause.is::<BadInput>()) { ExitCode::from(2) } else { ExitCode::FAILURE }
}
