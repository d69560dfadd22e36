//! Why a fleet problem is invalid, in words for its author.

/// An invalid problem file, or an invalid file that it names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// The text is no TOML, a key is unknown or missing, or a value has the wrong type.
    #[error("{file}: {message}")]
    Text {
        /// The problem file.
        file: String,
        /// The parser's message with line and key.
        message: String,
    },
    /// A value is out of range.
    #[error("{file}: key `{key}`: expected {expected}, got {got}")]
    Value {
        /// The problem file.
        file: String,
        /// Dotted path of the key.
        key: String,
        /// The value or range that was expected.
        expected: String,
        /// What was found.
        got: String,
    },
    /// A file that the problem names is missing or invalid.
    #[error("{file}: key `{key}`: {csv}: {message}")]
    Csv {
        /// The problem file.
        file: String,
        /// Dotted path of the key that names the CSV file.
        key: String,
        /// The CSV file.
        csv: String,
        /// The fault.
        message: String,
    },
}
