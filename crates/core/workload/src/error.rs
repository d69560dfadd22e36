//! Why a scenario is invalid, in words for its author.

/// An invalid scenario, or an invalid file that it names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The text is no TOML, a key is unknown or missing, or a value has the wrong type.
    #[error("{file}: {message}")]
    Text {
        /// The scenario file.
        file: String,
        /// The parser's message with line and key.
        message: String,
    },
    /// A value is out of range.
    #[error("{file}: key `{key}`: expected {expected}, got {got}")]
    Value {
        /// The scenario file.
        file: String,
        /// Dotted path of the key.
        key: String,
        /// The value or range that was expected.
        expected: String,
        /// What was found.
        got: String,
    },
    /// A file that the scenario names is missing or invalid.
    #[error("{file}: key `{key}`: {csv}: {message}")]
    Csv {
        /// The scenario file.
        file: String,
        /// Dotted path of the key that names the CSV file.
        key: String,
        /// The CSV file.
        csv: String,
        /// The fault.
        message: String,
    },
    /// An override is invalid for the scenario.
    #[error("--set {assignment}: {message}")]
    Set {
        /// The override as given.
        assignment: String,
        /// The fault.
        message: String,
    },
}

impl ScenarioError {
    /// This error, attributed to the override that causes it instead of the file.
    pub(crate) fn set_by(&self, assignment: &str) -> Self {
        let message = match self {
            Self::Text { message, .. } | Self::Set { message, .. } => message.clone(),
            Self::Value { key, expected, got, .. } => format!("key `{key}`: expected {expected}, got {got}"),
            Self::Csv { key, csv, message, .. } => format!("key `{key}`: {csv}: {message}"),
        };
        Self::Set { assignment: assignment.to_owned(), message }
    }
}
