//! An independent record of how far the log had got.
//!
//! An engine recovers from a crash by cutting what does not verify. That is right for writes torn by a power cut,
//! which were never acknowledged. But damage in the newest pages looks the same, and then an engine silently returns
//! to an older state: acknowledged entries or a vote are gone without a trace. So every batch carries a number, and
//! after each barrier, before any acknowledgement, the number is written to a separate file. An engine that recovers
//! less than that has lost entries that may have been acknowledged.
//!
//! The witness is not synced. After a power cut it may be older than the log, which proves less but accuses no intact
//! log; it can never be newer, since it is written after the barrier. It alternates between two sectors, so that a
//! torn write leaves the other one intact.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;

use super::frame;
use super::recovery::RecoveryError;

const FILE: &str = "witness";
const UNFINISHED_FILE: &str = "witness.unfinished";
/// The unit that a device writes atomically.
const SECTOR_BYTES: usize = 512;
const SECTORS: usize = 2;
const PLACE: &str = "the witness";

/// The file, and the sector of the next write.
#[derive(Debug)]
pub(crate) struct Witness {
    file: File,
    sector: usize,
    step: u64,
}

impl Witness {
    /// Opens the witness in `dir`. If the log has no batches yet it is created; otherwise it must exist.
    pub(crate) fn open(dir: &Path, log_has_steps: bool) -> Result<Self, RecoveryError> {
        let path = dir.join(FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !log_has_steps => {
                create(dir)?;
                fs::read(&path)?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged("the file is missing, the log was written with one"));
            }
            Err(error) => return Err(error.into()),
        };
        if bytes.len() != SECTORS * SECTOR_BYTES {
            let got = bytes.len();
            return Err(damaged(format!("the file has {got} bytes, expected {}", SECTORS * SECTOR_BYTES)));
        }
        let bytes = Bytes::from(bytes);
        let note = |sector: usize| {
            let at = sector * SECTOR_BYTES;
            frame::decode_step(&bytes.slice(at..at + frame::MARK_BYTES)).map_err(|error| damaged(error.to_string()))
        };
        let (first, second) = (note(0)?, note(1)?);
        let file = OpenOptions::new().write(true).open(path)?;
        Ok(Self { file, sector: usize::from(first > second), step: first.max(second) })
    }

    /// The last recorded step.
    pub(crate) fn step(&self) -> u64 {
        self.step
    }

    /// Records that everything up to `step` is durable.
    pub(crate) fn note(&mut self, step: u64) -> io::Result<()> {
        if step == self.step {
            return Ok(());
        }
        self.file.write_all_at(&frame::encode_step(step), (self.sector * SECTOR_BYTES) as u64)?;
        self.sector = (self.sector + 1) % SECTORS;
        self.step = step;
        Ok(())
    }
}

fn damaged(reason: impl Into<String>) -> RecoveryError {
    RecoveryError::Damaged { place: PLACE.to_owned(), reason: reason.into() }
}

fn create(dir: &Path) -> io::Result<()> {
    let unfinished = dir.join(UNFINISHED_FILE);
    let mut sector = frame::encode_step(0);
    sector.resize(SECTOR_BYTES, 0);
    let mut file = File::create(&unfinished)?;
    file.write_all(&sector.repeat(SECTORS))?;
    file.sync_all()?;
    fs::rename(unfinished, dir.join(FILE))?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_note_is_remembered_whichever_sector_it_is_in() {
        let dir = tempfile::tempdir().expect("temporary directory");
        for step in 1..=5 {
            let mut witness = Witness::open(dir.path(), step > 1).expect("opens");
            assert_eq!(witness.step(), step - 1);
            witness.note(step).expect("notes");
        }
        let mut witness = Witness::open(dir.path(), true).expect("opens");
        for step in 6..=9 {
            witness.note(step).expect("notes");
        }
        assert_eq!(Witness::open(dir.path(), true).expect("opens").step(), 9);
    }

    #[test]
    fn a_missing_torn_or_flipped_witness_is_damage() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let refused = || matches!(Witness::open(dir.path(), true), Err(RecoveryError::Damaged { .. }));
        assert!(refused(), "nobody may lose it");
        let _ = Witness::open(dir.path(), false).expect("is made");
        let path = dir.path().join(FILE);
        let whole = fs::read(&path).expect("reads");
        for at in [4, 30, SECTOR_BYTES + 4] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, bytes).expect("damages");
            assert!(refused(), "byte {at}");
        }
        fs::write(&path, &whole[..700]).expect("tears");
        assert!(refused());
        fs::write(&path, whole).expect("mends");
        assert!(!refused());
    }
}
