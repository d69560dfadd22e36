//! Marks a directory into which a backup is being restored: a part of one is not to be started from.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use crate::error::StartError;

const FILE: &str = "restoring";
const WORDS: &str = "A backup is being restored into this directory; if that has ended, it failed.";

/// Marks the directory; durable when this returns.
pub(super) fn mark(dir: &Path) -> io::Result<()> {
    let mut file = File::create(dir.join(FILE))?;
    writeln!(file, "{WORDS}")?;
    file.sync_all()?;
    File::open(dir)?.sync_all()
}

/// The restore is complete.
pub(crate) fn unmark(dir: &Path) -> io::Result<()> {
    fs::remove_file(dir.join(FILE))?;
    File::open(dir)?.sync_all()
}

/// Refuses a marked directory.
pub(super) fn check(dir: &Path) -> Result<(), StartError> {
    match fs::exists(dir.join(FILE)) {
        Ok(false) => Ok(()),
        Ok(true) => Err(StartError::RestoreUnfinished { place: dir.display().to_string() }),
        Err(source) => Err(StartError::Storage { place: dir.display().to_string(), source }),
    }
}
