//! Which lives of this replica its disk knows. What is known of a later one elsewhere says that the disk is an older copy of itself.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use symphony_types::{BootId, NodeId};

const LIVES: &str = "lives";
const FORGOTTEN: &str = "forgotten";

/// Lives that were begun since the last one that the cluster took in. A replica that starts so often in vain forgets those between.
const LIVES_MAX: usize = 1000;

/// In the place of lives of which an earlier release kept no record.
const UNKNOWN: BootId = BootId::new(0);

/// The last life that the cluster is known to have taken in, and all since, the present one too; kept on the disk.
#[derive(Debug)]
pub(crate) struct Lives {
    dir: PathBuf,
    boots: Mutex<Vec<BootId>>,
}

impl Lives {
    /// Begins a life; durable when this returns. A disk without a past has no other lives.
    ///
    /// # Errors
    /// If the disk fails or holds something else, or it was found earlier that it forgot what it acknowledged.
    pub(crate) fn begin(dir: &Path, has_past: bool, boot: BootId) -> io::Result<Self> {
        let mut boots = if has_past { read(dir)? } else { Vec::new() };
        boots.push(boot);
        if boots.len() > LIVES_MAX {
            boots.remove(1);
        }
        match fs::read_to_string(dir.join(FORGOTTEN)) {
            Ok(reason) if has_past => return Err(io::Error::new(io::ErrorKind::InvalidData, reason)),
            Ok(_) => fs::remove_file(dir.join(FORGOTTEN))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        write(dir, LIVES, lines(&boots))?;
        Ok(Self { dir: dir.to_owned(), boots: Mutex::new(boots) })
    }

    /// Whether the disk knows that life.
    pub(crate) fn know(&self, boot: BootId) -> bool {
        let boots = self.boots();
        boots.contains(&boot) || boots.contains(&UNKNOWN)
    }

    /// The cluster has taken this life in: nobody will name an earlier one.
    ///
    /// # Errors
    /// If the disk fails; then the record is longer than it has to be.
    pub(crate) fn taken_in(&self, boot: BootId) -> io::Result<()> {
        *self.boots() = vec![boot];
        write(&self.dir, LIVES, lines(&[boot]))
    }

    /// Sees to it that this disk begins no other life, and returns the words for it.
    pub(crate) fn mark_forgotten(&self, node: NodeId) -> String {
        let reason = format!(
            "scheduler {node} runs on an older copy of its disk ({}), or the disk lost what it had written: what it acknowledged and voted for \
             is forgotten. Give it a new id (symphony members replace {} --with NEW --control HOST:PORT) or its newest disk",
            self.dir.display(),
            node.get()
        );
        if let Err(error) = write(&self.dir, FORGOTTEN, &reason) {
            tracing::error!(%error, "that this disk is not to be used again cannot be written down");
        }
        reason
    }

    fn boots(&self) -> MutexGuard<'_, Vec<BootId>> {
        self.boots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lines(boots: &[BootId]) -> String {
    boots.iter().map(|boot| format!("{}\n", boot.get())).collect()
}

fn read(dir: &Path) -> io::Result<Vec<BootId>> {
    let path = dir.join(LIVES);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![UNKNOWN]),
        text => text?,
    };
    let malformed = |line: &str| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: `{line}` is no life's number", path.display()))
    };
    text.lines().map(|line| line.parse().map(BootId::new).map_err(|_| malformed(line))).collect()
}

/// Replaces the file; whole and durable when this returns.
fn write(dir: &Path, name: &str, text: impl fmt::Display) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let draft = dir.join(format!("{name}.new"));
    let mut file = File::create(&draft)?;
    write!(file, "{text}")?;
    file.sync_all()?;
    fs::rename(&draft, dir.join(name))?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn boot(number: u64) -> BootId {
        BootId::new(number)
    }

    #[test]
    fn an_older_copy_does_not_know_the_lives_since() {
        let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        Lives::begin(dir.path(), false, boot(11)).unwrap().taken_in(boot(11)).unwrap();
        fs::copy(dir.path().join(LIVES), copy.path().join(LIVES)).unwrap();

        // Two that nobody can be sure to have been taken in, and one that was.
        for number in [12, 13] {
            Lives::begin(dir.path(), true, boot(number)).unwrap();
        }
        let last = Lives::begin(dir.path(), true, boot(14)).unwrap();
        assert!([11, 12, 13, 14].into_iter().all(|number| last.know(boot(number))) && !last.know(boot(15)));
        last.taken_in(boot(14)).unwrap();
        assert!(last.know(boot(14)) && !last.know(boot(12)));

        let older = Lives::begin(copy.path(), true, boot(21)).unwrap();
        assert!(older.know(boot(11)) && !older.know(boot(14)));
        let reason = older.mark_forgotten(NodeId::new(3));
        let again = Lives::begin(copy.path(), true, boot(22)).unwrap_err().to_string();
        assert!(again == reason && reason.contains("members replace 3"), "{again}");
        assert!(Lives::begin(copy.path(), false, boot(23)).is_ok(), "it was emptied, and comes as somebody new");
        assert!(Lives::begin(copy.path(), true, boot(24)).is_ok());
    }

    #[test]
    fn a_disk_without_a_record_is_trusted_until_its_life_is_taken_in_and_a_damaged_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let lives = Lives::begin(dir.path(), true, boot(2)).unwrap();
        assert!(lives.know(boot(1)), "an earlier release kept none");
        assert!(Lives::begin(dir.path(), true, boot(3)).unwrap().know(boot(1)));
        lives.taken_in(boot(3)).unwrap();
        assert!(!Lives::begin(dir.path(), true, boot(4)).unwrap().know(boot(1)));
        fs::write(dir.path().join(LIVES), "12\nrubbish\n").unwrap();
        let error = Lives::begin(dir.path(), true, boot(5)).unwrap_err().to_string();
        assert!(error.contains("`rubbish` is no life's number"), "{error}");
    }

    #[test]
    fn a_replica_that_starts_in_vain_for_ever_keeps_the_first_and_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), LIVES, (1..=LIVES_MAX).map(|n| format!("{n}\n")).collect::<String>()).unwrap();
        let lives = Lives::begin(dir.path(), true, boot(5000)).unwrap();
        assert_eq!(lives.boots().len(), LIVES_MAX);
        assert!(lives.know(boot(1)) && lives.know(boot(5000)) && !lives.know(boot(2)));
    }
}
