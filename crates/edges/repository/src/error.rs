//! Why a repository has no such model.

use std::path::PathBuf;

/// Why a model of a repository cannot be described: names the file, the field, and what was expected.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// There is no such model.
    #[error("repository {} has no model `{name}`: {problem}", .dir.display())]
    NoModel {
        /// The repository.
        dir: PathBuf,
        /// The name asked for.
        name: String,
        /// What was looked for.
        problem: String,
    },
    /// The file system refused.
    #[error("{} cannot be read: {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The text is no model configuration.
    #[error("{}{}: {problem}", .path.display(), at_line(*.line))]
    Text {
        /// The file.
        path: PathBuf,
        /// From 1; 0 if it ended too early.
        line: usize,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// A field has a value that cannot be served.
    #[error("{}, field `{field}`: {problem}", .path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// The profile is none.
    #[error(transparent)]
    Profile(#[from] symphony_executor::profile::ProfileFileError),
    /// The profile is not this model's.
    #[error("profile {}: {problem}", .path.display())]
    OtherProfile {
        /// The file.
        path: PathBuf,
        /// What differs.
        problem: String,
    },
    /// No version, or not the one that is asked for.
    #[error("model `{name}` in {}: {problem}", .dir.display())]
    Versions {
        /// The model's folder.
        dir: PathBuf,
        /// The model.
        name: String,
        /// What is missing.
        problem: String,
    },
}

fn at_line(line: usize) -> String {
    if line == 0 { String::new() } else { format!(", line {line}") }
}
