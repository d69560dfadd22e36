//! Marks a directory that lacks entries acknowledged from it, so that it is never used again.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use crate::error::StartError;

const FILE: &str = "forgotten";
const WORDS: &str = "This directory has less than was acknowledged from it; it is not to be used again.";

/// Marks the directory; durable when this returns.
pub(crate) fn mark(dir: &Path) -> io::Result<()> {
    let mut file = File::create(dir.join(FILE))?;
    writeln!(file, "{WORDS}")?;
    file.sync_all()?;
    File::open(dir)?.sync_all()
}

/// Refuses a marked directory.
pub(super) fn check(dir: &Path) -> Result<(), StartError> {
    match fs::exists(dir.join(FILE)) {
        Ok(false) => Ok(()),
        Ok(true) => Err(StartError::Forgotten { place: dir.display().to_string() }),
        Err(source) => Err(StartError::Storage { place: dir.display().to_string(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_marked_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check(dir.path()).is_ok());
        mark(dir.path()).unwrap();
        let refused = check(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("older copy of itself") && refused.contains("a new id"), "{refused}");
    }
}
