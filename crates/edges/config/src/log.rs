//! `[log]`: the log of a process: its form and destination.

use std::path::PathBuf;

/// What a process logs, and where to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// A level (`error` to `trace`) or a filter such as `info,symphony_frontend=debug`.
    pub level: String,
    /// For people or for programs.
    pub format: LogFormat,
    /// A file to append to; none (an empty string) is standard error.
    #[serde(with = "crate::empty_is_none")]
    pub file: Option<PathBuf>,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}
