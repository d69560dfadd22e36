//! Opens sled without risking the existing files.
//!
//! sled's recovery changes its own input: it writes a snapshot of what it found, removes the previous snapshot, and
//! overwrites segments that it no longer needs, without syncs between these steps. A power cut in between can keep the
//! overwritten segments and lose the name of the new snapshot, and then acknowledged entries are gone. So sled
//! recovers on a copy. The copy becomes the log only once it is open, complete and synced; until then the original
//! files stay untouched.
//!
//! ```text
//! log/current    number of the generation that counts        log/N/  its files        log/lock  held while open
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::super::lock_wait::retry_while_locked;

const CURRENT_FILE: &str = "current";
const UNFINISHED_FILE: &str = "current.unfinished";
const LOCK_FILE: &str = "lock";
/// Logs from before generations existed lie in the directory itself.
const FIRST_LAYOUT_FILE: &str = "db";

/// Opens the log in `dir` by calling `open` on a directory that it may change. Also returns the lock, to be held while
/// the log is open.
pub(super) fn open_copy<T>(dir: &Path, open: impl Fn(&Path) -> io::Result<T>) -> io::Result<(T, File)> {
    fs::create_dir_all(dir)?;
    let lock = retry_while_locked(|| try_lock(dir), |error| error.kind() == io::ErrorKind::WouldBlock)?;
    let current = current(dir)?;
    let number = current.unwrap_or(0);
    let source = match current {
        Some(number) => Some(dir.join(number.to_string())),
        None if dir.join(FIRST_LAYOUT_FILE).exists() => Some(dir.to_owned()),
        None => None,
    };
    let next = number.checked_add(1).ok_or_else(|| invalid("generations are used up".to_owned()))?;
    let target = dir.join(next.to_string());
    remove_if_there(&target)?;
    let copied = match &source {
        Some(source) => copy_files(source, &target),
        None => fs::create_dir(&target),
    };
    match (copied, source) {
        (Ok(()), _) => {}
        // On a full disk, a log that opens is better than one that would also survive a power cut right now.
        (Err(error), Some(source)) if error.kind() == io::ErrorKind::StorageFull => {
            tracing::warn!("no room to copy the log: recovering it in place");
            remove_if_there(&target)?;
            return Ok((open(&source)?, lock));
        }
        (Err(error), _) => return Err(error),
    }
    let opened = open(&target)?;
    sync_tree(&target)?;
    publish(dir, next)?;
    clean(dir, next)?;
    Ok((opened, lock))
}

fn try_lock(dir: &Path) -> io::Result<File> {
    let lock = File::options().create(true).truncate(false).write(true).open(dir.join(LOCK_FILE))?;
    lock.try_lock()?;
    Ok(lock)
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn current(dir: &Path) -> io::Result<Option<u64>> {
    let text = match fs::read_to_string(dir.join(CURRENT_FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let number = text.strip_suffix('\n').and_then(|text| text.parse().ok());
    // A leading zero or sign would parse as well; only the written form is accepted.
    let number = number.filter(|number: &u64| text == format!("{number}\n"));
    number.map(Some).ok_or_else(|| invalid(format!("the current generation is {text:?}, expected a number")))
}

fn remove_if_there(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Copies files and the files of directories, without generations and their files.
fn copy_files(source: &Path, target: &Path) -> io::Result<()> {
    fs::create_dir(target)?;
    for file in fs::read_dir(source)? {
        let file = file?;
        let name = file.file_name();
        let (from, to) = (file.path(), target.join(&name));
        if generation_number(&from).is_some() || name == LOCK_FILE {
            continue;
        }
        if file.file_type()?.is_dir() {
            copy_files(&from, &to)?;
        } else {
            copy_file(&from, &to)?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let (mut source, mut target) = (File::open(from)?, File::create(to)?);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match io::Read::read(&mut source, &mut buffer)? {
            0 => return Ok(()),
            length => target.write_all(&buffer[..length])?,
        }
    }
}

/// The names of the files have to survive, not only their contents.
fn sync_tree(dir: &Path) -> io::Result<()> {
    for file in fs::read_dir(dir)? {
        let file = file?;
        if file.file_type()?.is_dir() {
            sync_tree(&file.path())?;
        } else {
            File::open(file.path())?.sync_all()?;
        }
    }
    File::open(dir)?.sync_all()
}

fn publish(dir: &Path, number: u64) -> io::Result<()> {
    // The generation's own name first.
    File::open(dir)?.sync_all()?;
    let unfinished = dir.join(UNFINISHED_FILE);
    let mut file = File::create(&unfinished)?;
    file.write_all(format!("{number}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(unfinished, dir.join(CURRENT_FILE))?;
    File::open(dir)?.sync_all()?;
    dir.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

fn generation_number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.parse().ok()
}

/// Removes other generations than `current`.
fn clean(dir: &Path, current: u64) -> io::Result<()> {
    for file in fs::read_dir(dir)? {
        let path: PathBuf = file?.path();
        let name = path.file_name().unwrap_or_default();
        if generation_number(&path) == Some(current) || name == CURRENT_FILE || name == LOCK_FILE {
            continue;
        }
        if path.is_dir() {
            fs::remove_dir_all(path)?;
        } else {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens by adding a file, as a recovery would.
    fn mark(name: &'static str) -> impl Fn(&Path) -> io::Result<()> {
        move |dir| fs::write(dir.join(name), name)
    }

    fn names(dir: &Path) -> Vec<String> {
        let names = fs::read_dir(dir).expect("lists").map(|file| file.expect("file").file_name());
        let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn each_opening_works_on_a_copy_that_then_takes_over() {
        let dir = tempfile::tempdir().expect("temporary directory");
        drop(open_copy(dir.path(), mark("first")).expect("opens"));
        assert_eq!(names(dir.path()), ["1", "current", "lock"]);
        drop(open_copy(dir.path(), mark("second")).expect("opens"));
        assert_eq!(names(dir.path()), ["2", "current", "lock"]);
        assert_eq!(names(&dir.path().join("2")), ["first", "second"]);
    }

    #[test]
    fn an_opening_that_fails_leaves_everything_as_it_was() {
        let dir = tempfile::tempdir().expect("temporary directory");
        drop(open_copy(dir.path(), mark("first")).expect("opens"));
        let harm = |copy: &Path| {
            fs::remove_file(copy.join("first"))?;
            Err::<(), _>(io::Error::other("power cut"))
        };
        assert!(open_copy(dir.path(), harm).is_err());
        assert_eq!(names(&dir.path().join("1")), ["first"]);
        drop(open_copy(dir.path(), mark("second")).expect("opens"));
        assert_eq!(names(&dir.path().join("2")), ["first", "second"]);
    }

    #[test]
    fn a_log_of_the_first_layout_moves_in() {
        let dir = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(dir.path().join("blobs")).expect("directory");
        fs::write(dir.path().join("db"), "entries").expect("file");
        drop(open_copy(dir.path(), mark("opened")).expect("opens"));
        assert_eq!(names(dir.path()), ["1", "current", "lock"]);
        assert_eq!(names(&dir.path().join("1")), ["blobs", "db", "opened"]);
    }

    #[test]
    fn a_damaged_number_is_refused_and_a_second_owner_waits_in_vain() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (_, lock) = open_copy(dir.path(), mark("first")).expect("opens");
        assert_eq!(try_lock(dir.path()).expect_err("is held").kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        fs::write(dir.path().join(CURRENT_FILE), "01\n").expect("damages");
        assert_eq!(open_copy(dir.path(), mark("x")).expect_err("refuses").kind(), io::ErrorKind::InvalidData);
    }
}
