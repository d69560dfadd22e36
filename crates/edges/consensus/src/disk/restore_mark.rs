//! Marks a directory into which a backup is being restored, so that no replica starts from half of one; and names the
//! index at which a restored log begins.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use crate::error::StartError;

const FILE: &str = "restoring";
const DONE: &str = "restored";
const WORDS: &str = "A backup is being restored into this directory; if that has ended, it failed.";

/// Marks the directory; durable when this returns.
pub(super) fn mark(dir: &Path) -> io::Result<()> {
    let mut file = File::create(dir.join(FILE))?;
    writeln!(file, "{WORDS}")?;
    file.sync_all()?;
    File::open(dir)?.sync_all()
}

/// The restore is complete: the log begins at this index.
pub(crate) fn finish(dir: &Path, index: u64) -> io::Result<()> {
    let mut file = File::create(dir.join(FILE))?;
    writeln!(file, "{index}")?;
    file.sync_all()?;
    fs::rename(dir.join(FILE), dir.join(DONE))?;
    File::open(dir)?.sync_all()
}

/// The index at which the log begins: that of the restored state, or 0.
pub(crate) fn log_begins_at(dir: &Path) -> Result<u64, StartError> {
    let place = dir.display().to_string();
    let text = match fs::read_to_string(dir.join(DONE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(source) => return Err(StartError::Storage { place, source }),
    };
    text.trim().parse().map_err(|_| {
        let reason = format!("it holds {text:?}; expected the index of a log");
        StartError::Damaged { place, what: DONE.to_owned(), reason }
    })
}

/// Refuses a marked directory.
pub(super) fn check(dir: &Path) -> Result<(), StartError> {
    match fs::exists(dir.join(FILE)) {
        Ok(false) => Ok(()),
        Ok(true) => Err(StartError::RestoreUnfinished { place: dir.display().to_string() }),
        Err(source) => Err(StartError::Storage { place: dir.display().to_string(), source }),
    }
}
