//! Records which engine's log a directory holds.
//!
//! Another engine would create a fresh, empty log beside the existing files, and the node would have forgotten its
//! votes. So the name of the engine is written before the engine first opens the directory, and checked at every later
//! start.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::config::Engine;
use crate::error::StartError;

const FILE: &str = "engine";
const UNFINISHED_FILE: &str = "engine.unfinished";

/// Refuses a directory of another engine; stamps a directory without a stamp.
pub(super) fn check(dir: &Path, log_dir: &Path, configured: Engine) -> Result<(), StartError> {
    let place = || dir.display().to_string();
    let storage = |source| StartError::Storage { place: place(), source };
    let found = match fs::read(dir.join(FILE)) {
        Ok(bytes) => Some(parse(&bytes).ok_or_else(|| StartError::Damaged {
            place: place(),
            what: "the engine's name".to_owned(),
            reason: format!("it is {:?}", String::from_utf8_lossy(&bytes)),
        })?),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(storage(error)),
        // Directories from before there was a choice have no stamp; their logs are sled's.
        Err(_) if holds_files(log_dir).map_err(storage)? => Some(Engine::Sled),
        Err(_) => None,
    };
    match found {
        Some(found) if found != configured => {
            Err(StartError::OtherEngine { place: place(), found: found.name(), configured: configured.name() })
        }
        // A log in memory leaves nothing that another engine could open.
        None if configured != Engine::Memory => write(dir, configured).map_err(storage),
        _ => Ok(()),
    }
}

fn parse(bytes: &[u8]) -> Option<Engine> {
    [Engine::Sled, Engine::Redb].into_iter().find(|engine| bytes == line(*engine).as_bytes())
}

fn line(engine: Engine) -> String {
    format!("{}\n", engine.name())
}

fn holds_files(dir: &Path) -> io::Result<bool> {
    match fs::read_dir(dir) {
        Ok(mut files) => Ok(files.next().transpose()?.is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn write(dir: &Path, engine: Engine) -> io::Result<()> {
    let unfinished = dir.join(UNFINISHED_FILE);
    let mut file = File::create(&unfinished)?;
    file.write_all(line(engine).as_bytes())?;
    file.sync_all()?;
    fs::rename(unfinished, dir.join(FILE))?;
    File::open(dir)?.sync_all()?;
    match dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_stays_with_the_engine_that_first_had_it() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let check = |engine| check(dir.path(), &dir.path().join("log"), engine);
        check(Engine::Memory).expect("leaves no trace");
        check(Engine::Redb).expect("stamps");
        check(Engine::Redb).expect("knows it again");
        for other in [Engine::Sled, Engine::Memory] {
            let refusal = check(other).expect_err("refuses").to_string();
            assert!(refusal.contains("is redb's") && refusal.contains(other.name()), "{refusal}");
        }
        fs::write(dir.path().join(FILE), "rebd\n").expect("damages");
        assert!(matches!(check(Engine::Redb), Err(StartError::Damaged { .. })));
    }

    #[test]
    fn a_log_from_before_there_was_a_stamp_is_sleds() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let log = dir.path().join("log");
        fs::create_dir(&log).expect("directory");
        fs::write(log.join("db"), "data").expect("file");
        assert!(matches!(check(dir.path(), &log, Engine::Redb), Err(StartError::OtherEngine { .. })));
        check(dir.path(), &log, Engine::Sled).expect("is sled's");
    }
}
