//! What this program was built without.

use crate::exit::bad_input;

/// The refusal of a command whose feature was left out.
pub(crate) fn left_out(command: &str, feature: &str) -> anyhow::Error {
    bad_input(format!(
        "this program was built without `symphony {command}` (feature `{feature}`); `make build` makes one with all"
    ))
}
