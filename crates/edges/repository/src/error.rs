//! Errors of a repository.

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
        /// The missing part.
        problem: String,
    },
    /// The file system refused.
    #[error("{} cannot be read: {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The text is no model configuration.
    #[error("{}{}: {problem}", .path.display(), at_line(*.line))]
    Text {
        /// The file.
        path: PathBuf,
        /// From 1; 0 if it ended too early.
        line: usize,
        /// The defect and the expected value.
        problem: String,
    },
    /// A field has a value that cannot be served.
    #[error("{}, field `{field}`: {problem}", .path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// Path of the field in the file.
        field: String,
        /// The defect and the expected value.
        problem: String,
    },
    /// The profile is invalid.
    #[error(transparent)]
    Profile(#[from] symphony_executor::profile::ProfileFileError),
    /// `pipeline.toml`, beside a pipeline's configuration, describes nothing that can be run.
    #[error(transparent)]
    Pipeline(Box<symphony_pipeline::PipelineError>),
    /// The profile is not this model's.
    #[error("profile {}: {problem}", .path.display())]
    OtherProfile {
        /// The file.
        path: PathBuf,
        /// What differs.
        problem: String,
    },
    /// There is no version, or not the requested one.
    #[error("model `{name}` in {}: {problem}", .dir.display())]
    Versions {
        /// The model's folder.
        dir: PathBuf,
        /// The model.
        name: String,
        /// The missing version.
        problem: String,
    },
}

fn at_line(line: usize) -> String {
    if line == 0 { String::new() } else { format!(", line {line}") }
}
