//! What a field of a command may hold, whatever the state.

use std::ops::RangeInclusive;

use crate::limits::{ADDRESS_BYTES_MAX, NAME_BYTES_MAX};

/// A field that no command may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct InvalidField {
    /// Which field.
    pub field: String,
    /// What was found and what was expected.
    pub reason: String,
}

/// The error of a field.
#[must_use]
pub fn invalid(field: &str, reason: &str) -> InvalidField {
    InvalidField { field: field.to_owned(), reason: reason.to_owned() }
}

/// Names are shown in tables, logs, metric labels and addresses: no blanks, nothing invisible.
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

/// A text of so many bytes.
///
/// # Errors
/// If it has fewer or more.
pub fn text(field: &str, value: &str, bytes: RangeInclusive<usize>) -> Result<(), InvalidField> {
    let (got, min, max) = (value.len(), *bytes.start(), *bytes.end());
    match (bytes.contains(&got), min) {
        (true, _) => Ok(()),
        (false, 0) => Err(invalid(field, &format!("{got} bytes; expected at most {max}"))),
        (false, _) => Err(invalid(field, &format!("{got} bytes; expected {min} to {max}"))),
    }
}

/// `host:port`.
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

/// A number of entries.
///
/// # Errors
/// If there are fewer or more.
pub fn count(field: &str, got: usize, expected: RangeInclusive<usize>) -> Result<(), InvalidField> {
    if expected.contains(&got) {
        return Ok(());
    }
    Err(invalid(field, &format!("{got} entries; expected {} to {}", expected.start(), expected.end())))
}
