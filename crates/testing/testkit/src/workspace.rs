//! The directory of one test.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

/// A fresh directory for a test's cluster: data, logs, configurations.
///
/// It is removed when the test passes and kept when it panics, with its path on standard error; setting
/// `SYMPHONY_KEEP` keeps it always.
#[derive(Debug)]
pub struct Workspace {
    dir: Option<TempDir>,
    path: PathBuf,
}

impl Workspace {
    /// A fresh directory whose name begins with `symphony-` and the test's name.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(test: &str) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix(&format!("symphony-{test}-"))
            .tempdir()
            .with_context(|| format!("cannot make a directory for test {test}"))?;
        let path = dir.path().to_owned();
        Ok(Self { dir: Some(dir), path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in the directory, which need not exist.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file in it and returns its path.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.file(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Keeps the directory whatever happens, as a failed run's report does.
    pub fn keep(&mut self) {
        if let Some(dir) = self.dir.take() {
            let _ = dir.keep();
        }
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if std::thread::panicking() || std::env::var_os("SYMPHONY_KEEP").is_some() {
            self.keep();
            eprintln!("the test's files are kept in {}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_vanish_with_success_and_stay_with_failure() {
        let passed = {
            let workspace = Workspace::new("passes").unwrap();
            workspace.write("node.toml", "x = 1").unwrap()
        };
        assert!(!passed.exists() || std::env::var_os("SYMPHONY_KEEP").is_some());

        let path = std::sync::Mutex::new(None);
        let failed = std::panic::catch_unwind(|| {
            let workspace = Workspace::new("fails").unwrap();
            *path.lock().unwrap() = Some(workspace.path().to_owned());
            std::panic::resume_unwind(Box::new("planted failure"));
        });
        assert!(failed.is_err());
        let path = path.into_inner().unwrap().unwrap();
        assert!(path.exists());
        std::fs::remove_dir_all(path).unwrap();
    }
}
