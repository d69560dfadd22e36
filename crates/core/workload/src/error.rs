//! Why a scenario cannot be used, in words for the person who wrote it.

/// A scenario, or a file that it names, is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The text is no TOML, a key is unknown or missing, or a value has the wrong type.
    #[error("{file}: {message}")]
    Text {
        /// The scenario file.
        file: String,
        /// What the parser says; names line and key.
        message: String,
    },
    /// A value is outside of what makes sense.
    #[error("{file}: key `{key}`: expected {expected}, got {got}")]
    Value {
        /// The scenario file.
        file: String,
        /// Dotted path of the key.
        key: String,
        /// What would have been right.
        expected: String,
        /// What was there.
        got: String,
    },
    /// A file that the scenario names is missing or wrong.
    #[error("{file}: key `{key}`: {csv}: {message}")]
    Csv {
        /// The scenario file.
        file: String,
        /// Dotted path of the key that names the csv file.
        key: String,
        /// The csv file.
        csv: String,
        /// What is wrong with it.
        message: String,
    },
    /// An override does not fit the scenario.
    #[error("--set {assignment}: {message}")]
    Set {
        /// The override as given.
        assignment: String,
        /// What is wrong with it.
        message: String,
    },
}

impl ScenarioError {
    /// The same, said of the override that brings it about instead of the file.
    pub(crate) fn set_by(&self, assignment: &str) -> Self {
        let message = match self {
            Self::Text { message, .. } | Self::Set { message, .. } => message.clone(),
            Self::Value { key, expected, got, .. } => format!("key `{key}`: expected {expected}, got {got}"),
            Self::Csv { key, csv, message, .. } => format!("key `{key}`: {csv}: {message}"),
        };
        Self::Set { assignment: assignment.to_owned(), message }
    }
}
