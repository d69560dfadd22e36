//! The log of a process: lines for people or JSON for programs, to standard error or a file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogForm {
    /// For people; coloured on a terminal.
    Text,
    /// One JSON object per line.
    Json,
}

/// How to log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions<'a> {
    /// A level (`error` to `trace`) or a filter such as `info,symphony_frontend=debug`.
    pub filter: &'a str,
    /// The form of a line.
    pub form: LogForm,
    /// A file to append to; none is standard error.
    pub file: Option<&'a Path>,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter makes no sense.
    #[error("log filter `{filter}`: {reason}; expected a level or target=level, such as info,symphony_frontend=debug")]
    Filter {
        /// The text that was given.
        filter: String,
        /// The defect.
        reason: String,
    },
    /// The file cannot be opened.
    #[error("cannot append to the log file {}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// This process logs already.
    #[error("the log is already set up; expected one call per process")]
    Twice,
    /// The filter could not be put in place of the earlier one.
    #[error("the log filter cannot be changed: {0}")]
    Unchanged(String),
}

/// The filter of this process's log, which may be changed while it runs.
pub struct LogFilter(Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>);

impl LogFilter {
    /// From now on the log is filtered by `text`.
    ///
    /// # Errors
    /// If the filter makes no sense, or the log has gone.
    pub fn change(&self, text: &str) -> Result<(), LogError> {
        (self.0)(filter(text)?).map_err(LogError::Unchanged)
    }
}

impl fmt::Debug for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogFilter").finish_non_exhaustive()
    }
}

/// Sets up the log of this process. Call it once, before the first thread is started.
///
/// Lines are written by the thread that logs; decision threads do not log. Returns the filter.
///
/// # Errors
/// If the filter makes no sense, the file cannot be opened, or the process logs already.
pub fn init_logging(options: &LogOptions<'_>) -> Result<LogFilter, LogError> {
    let filter = filter(options.filter)?;
    let (writer, colour) = match options.file {
        Some(path) => (BoxMakeWriter::new(Mutex::new(open(path)?)), false),
        None => (BoxMakeWriter::new(std::io::stderr), std::io::stderr().is_terminal()),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(colour);
    let set_up = match options.form {
        LogForm::Text => {
            let builder = builder.with_filter_reloading();
            let handle = builder.reload_handle();
            builder.try_init().map(|()| LogFilter(Box::new(move |f| handle.reload(f).map_err(|e| e.to_string()))))
        }
        LogForm::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.try_init().map(|()| LogFilter(Box::new(move |f| handle.reload(f).map_err(|e| e.to_string()))))
        }
    };
    set_up.map_err(|_| LogError::Twice)
}

/// Libraries whose messages at `info` are useless to an operator; a filter that names them takes precedence.
const QUIET: &str = "openraft=error,ort=warn";

fn filter(text: &str) -> Result<EnvFilter, LogError> {
    EnvFilter::try_new(format!("{QUIET},{text}"))
        .map_err(|e| LogError::Filter { filter: text.to_owned(), reason: e.to_string() })
}

fn open(path: &Path) -> Result<File, LogError> {
    let fail = |source| LogError::File { path: path.to_owned(), source };
    OpenOptions::new().create(true).append(true).open(path).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_and_files_that_cannot_be_are_refused_by_name() {
        assert!(filter("info,symphony_frontend=debug").is_ok());
        assert!(filter("info").unwrap().to_string().contains("openraft=error"));
        assert!(
            filter("info,openraft=debug").unwrap().to_string().contains("openraft=debug"),
            "the caller's word wins"
        );
        let error = filter("symphony=loud").unwrap_err().to_string();
        assert!(error.contains("log filter `symphony=loud`"), "{error}");
        let error = open(Path::new("no/such/dir/log")).unwrap_err().to_string();
        assert!(error.contains("cannot append to the log file no/such/dir/log"), "{error}");
    }
}
