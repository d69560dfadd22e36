//! The boots of this replica that its disk knows. If others know a later one, the disk is an older copy of itself.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use symphony_types::BootId;

/// As release 0.2 called it: disks have it under this name.
const FILE: &str = "lives";

/// Boots since the last one that the cluster registered. A replica that fails to start more often forgets the oldest.
const BOOTS_MAX: usize = 1000;

/// The last boot in the replica's own log, and all later ones including the present; the latter are kept on the disk.
#[derive(Debug)]
pub(crate) struct BootHistory {
    dir: PathBuf,
    boots: Mutex<Vec<BootId>>,
}

impl BootHistory {
    /// Begins a boot. It is durable on return, unless the disk is full; then the log will know of it, if the cluster
    /// registers it. `logged` is the last boot that the replica's own log names.
    ///
    /// # Errors
    /// If the disk fails or holds something else.
    pub(crate) fn begin(dir: &Path, has_past: bool, boot: BootId, logged: Option<BootId>) -> io::Result<Self> {
        let mut boots = if has_past { read(dir)? } else { Vec::new() };
        boots.extend(logged.filter(|logged| !boots.contains(logged)));
        boots.push(boot);
        boots.drain(..boots.len().saturating_sub(BOOTS_MAX));
        match write(dir, &boots) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                tracing::warn!(%error, "this boot cannot be written down");
            }
            written => written?,
        }
        Ok(Self { dir: dir.to_owned(), boots: Mutex::new(boots) })
    }

    /// Whether the disk knows that boot.
    pub(crate) fn know(&self, boot: BootId) -> bool {
        self.boots().contains(&boot)
    }

    /// The cluster has registered this boot, by the log: no replica with more of the log will name an earlier one.
    ///
    /// # Errors
    /// If the disk fails; then the record is longer than it has to be.
    pub(crate) fn taken_in(&self, boot: BootId) -> io::Result<()> {
        *self.boots() = vec![boot];
        write(&self.dir, &[boot])
    }

    fn boots(&self) -> MutexGuard<'_, Vec<BootId>> {
        self.boots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(dir: &Path) -> io::Result<Vec<BootId>> {
    let path = dir.join(FILE);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let malformed = |line: &str| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: `{line}` is no boot's number", path.display()))
    };
    text.lines().map(|line| line.parse().map(BootId::new).map_err(|_| malformed(line))).collect()
}

/// Replaces the file atomically; durable on return.
fn write(dir: &Path, boots: &[BootId]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let draft = dir.join(format!("{FILE}.new"));
    let mut file = File::create(&draft)?;
    for boot in boots {
        writeln!(file, "{}", boot.get())?;
    }
    file.sync_all()?;
    fs::rename(&draft, dir.join(FILE))?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn boot(number: u64) -> BootId {
        BootId::new(number)
    }

    #[test]
    fn an_older_copy_does_not_know_the_boots_since() {
        let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        BootHistory::begin(dir.path(), false, boot(11), None).unwrap().taken_in(boot(11)).unwrap();
        fs::copy(dir.path().join(FILE), copy.path().join(FILE)).unwrap();

        // Two boots that may have been registered, and one that was.
        for number in [12, 13] {
            BootHistory::begin(dir.path(), true, boot(number), Some(boot(11))).unwrap();
        }
        let last = BootHistory::begin(dir.path(), true, boot(14), Some(boot(11))).unwrap();
        assert!([11, 12, 13, 14].into_iter().all(|number| last.know(boot(number))) && !last.know(boot(15)));
        last.taken_in(boot(14)).unwrap();
        assert!(last.know(boot(14)) && !last.know(boot(12)));

        let older = BootHistory::begin(copy.path(), true, boot(21), Some(boot(11))).unwrap();
        assert!(older.know(boot(11)) && !older.know(boot(14)));
    }

    #[test]
    fn what_a_release_without_the_record_began_is_known_by_the_log_and_a_damaged_record_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let boot_history = BootHistory::begin(dir.path(), true, boot(2), Some(boot(1))).unwrap();
        assert!(boot_history.know(boot(1)) && !boot_history.know(boot(7)));
        boot_history.taken_in(boot(2)).unwrap();
        // The older release ran again meanwhile.
        assert!(BootHistory::begin(dir.path(), true, boot(4), Some(boot(3))).unwrap().know(boot(3)));
        fs::write(dir.path().join(FILE), "12\nrubbish\n").unwrap();
        let error = BootHistory::begin(dir.path(), true, boot(5), None).unwrap_err().to_string();
        assert!(error.contains("`rubbish` is no boot's number"), "{error}");
    }

    #[test]
    fn a_replica_that_starts_in_vain_for_ever_keeps_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &(1..=BOOTS_MAX as u64).map(boot).collect::<Vec<_>>()).unwrap();
        let boot_history = BootHistory::begin(dir.path(), true, boot(5000), Some(boot(4000))).unwrap();
        assert_eq!(boot_history.boots().len(), BOOTS_MAX);
        assert!(
            boot_history.know(boot(4000))
                && boot_history.know(boot(5000))
                && !boot_history.know(boot(2))
                && boot_history.know(boot(3))
        );
    }
}
