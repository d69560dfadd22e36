//! Validation of command fields without the state.

use std::ops::RangeInclusive;

use crate::limits::{ADDRESS_BYTES_MAX, NAME_BYTES_MAX};

/// A field with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct InvalidField {
    /// Path of the field in the command.
    pub field: String,
    /// What was found and what was expected.
    pub reason: String,
}

/// Makes the error of a field.
#[must_use]
pub fn invalid(field: &str, reason: &str) -> InvalidField {
    InvalidField { field: field.to_owned(), reason: reason.to_owned() }
}

/// Checks a name. Names are shown in tables, logs, metric labels and addresses: no blanks, no invisible characters.
///
/// # Errors
/// If the value is empty, too long, or has such characters.
pub fn name(field: &str, value: &str) -> Result<(), InvalidField> {
    text(field, value, 1..=NAME_BYTES_MAX)?;
    if value.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(invalid(field, &format!("{value:?} has blanks or control characters; expected none")));
    }
    Ok(())
}

/// Checks the length of a text in bytes.
///
/// # Errors
/// If it is too short or too long.
pub fn text(field: &str, value: &str, bytes: RangeInclusive<usize>) -> Result<(), InvalidField> {
    let (got, min, max) = (value.len(), *bytes.start(), *bytes.end());
    match (bytes.contains(&got), min) {
        (true, _) => Ok(()),
        (false, 0) => Err(invalid(field, &format!("{got} bytes; expected at most {max}"))),
        (false, _) => Err(invalid(field, &format!("{got} bytes; expected {min} to {max}"))),
    }
}

/// Checks that a value is `host:port`.
///
/// # Errors
/// If it is anything else.
pub fn address(field: &str, value: &str) -> Result<(), InvalidField> {
    let expected = || invalid(field, &format!("{value:?} is no address; expected host:port"));
    if value.len() > ADDRESS_BYTES_MAX {
        let reason = format!("{} bytes; expected host:port of at most {ADDRESS_BYTES_MAX}", value.len());
        return Err(invalid(field, &reason));
    }
    let (host, port) = value.rsplit_once(':').ok_or_else(expected)?;
    let port: u16 = port.parse().map_err(|_| expected())?;
    if host.is_empty() || port == 0 || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(expected());
    }
    Ok(())
}

/// Checks the number of entries.
///
/// # Errors
/// If there are too few or too many.
pub fn count(field: &str, got: usize, expected: RangeInclusive<usize>) -> Result<(), InvalidField> {
    if expected.contains(&got) {
        return Ok(());
    }
    Err(invalid(field, &format!("{got} entries; expected {} to {}", expected.start(), expected.end())))
}
