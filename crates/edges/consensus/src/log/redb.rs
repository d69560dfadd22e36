//! The second engine: redb 4, a copy-on-write tree in one file (docs/adr/0012).

use std::fs::{self, File};
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

use bytes::Bytes;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::engine::{Batch, LogEngine, Slot};
use super::lock_wait::retry_while_locked;
use crate::limits::ENGINE_CACHE_BYTES;

const DATA_FILE: &str = "log.redb";
/// Renamed to the data file once it is complete.
const UNFINISHED_FILE: &str = "log.redb.unfinished";

const ENTRIES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("entries");
const SLOTS: TableDefinition<'_, u8, &[u8]> = TableDefinition::new("slots");

/// A redb database in which only barriers are durable.
///
/// Every batch is a transaction of its own that stays in memory (`Durability::None`); the barrier is a durable
/// transaction that carries all earlier ones. Transactions commit in one phase: data, the other of two root slots, and
/// the switch between them, then a single fdatasync. A crash leaves either root, and redb takes the newest with valid
/// checksums.
#[derive(Debug)]
pub(crate) struct RedbEngine {
    db: Database,
    file: File,
}

impl RedbEngine {
    /// Opens or creates the database in `dir`.
    ///
    /// A new database gets its name only when complete: otherwise a crash during its creation would leave a file that
    /// is neither empty nor a database. An existing one is checked page by page, so that damage is an error here and
    /// not a panic later; a log has only some megabytes.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let path = dir.join(DATA_FILE);
        if !path.exists() {
            create(dir)?;
        }
        let db = retry_while_locked(
            || redb::Builder::new().set_cache_size(ENGINE_CACHE_BYTES).set_check_integrity_on_open(true).open(&path),
            |error| matches!(error, redb::DatabaseError::DatabaseAlreadyOpen),
        );
        let db = db.map_err(into_io)?;
        let engine = Self { db, file: File::open(&path)? };
        // What a killed predecessor left in the page cache counts as durable from here on, so it must be.
        engine.barrier()?;
        Ok(engine)
    }
}

fn create(dir: &Path) -> io::Result<()> {
    let unfinished = dir.join(UNFINISHED_FILE);
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let db = Database::create(&unfinished).map_err(into_io)?;
    let tables = db.begin_write().map_err(into_io)?;
    tables.open_table(ENTRIES).map_err(into_io)?;
    tables.open_table(SLOTS).map_err(into_io)?;
    tables.commit().map_err(into_io)?;
    drop(db);
    File::open(&unfinished)?.sync_all()?;
    fs::rename(&unfinished, dir.join(DATA_FILE))?;
    File::open(dir)?.sync_all()?;
    match dir.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn into_io(error: impl Into<redb::Error>) -> io::Error {
    match error.into() {
        redb::Error::Io(error) => error,
        corrupt @ redb::Error::Corrupted(_) => io::Error::new(io::ErrorKind::InvalidData, corrupt.to_string()),
        other => io::Error::other(other.to_string()),
    }
}

fn slot_key(slot: Slot) -> u8 {
    match slot {
        Slot::Stamp => 0,
        Slot::Vote => 1,
        Slot::Committed => 2,
        Slot::Purged => 3,
        Slot::Next => 4,
        Slot::Step => 5,
    }
}

impl LogEngine for RedbEngine {
    fn write(&self, batch: Batch) -> io::Result<()> {
        let mut change = self.db.begin_write().map_err(into_io)?;
        change.set_durability(Durability::None).map_err(into_io)?;
        {
            let mut entries = change.open_table(ENTRIES).map_err(into_io)?;
            if let Some(range) = batch.remove.filter(|range| !range.is_empty()) {
                entries.retain_in(range, |_, _| false).map_err(into_io)?;
            }
            for (index, frame) in &batch.entries {
                entries.insert(index, frame.as_ref()).map_err(into_io)?;
            }
            let mut slots = change.open_table(SLOTS).map_err(into_io)?;
            for (slot, frame) in &batch.slots {
                slots.insert(slot_key(*slot), frame.as_ref()).map_err(into_io)?;
            }
        }
        change.commit().map_err(into_io)
    }

    fn barrier(&self) -> io::Result<()> {
        self.db.begin_write().map_err(into_io)?.commit().map_err(into_io)
    }

    fn read(&self, range: RangeInclusive<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>> {
        let mut found = Vec::new();
        if range.is_empty() {
            return Ok(found);
        }
        let view = self.db.begin_read().map_err(into_io)?;
        let entries = view.open_table(ENTRIES).map_err(into_io)?;
        let mut bytes = 0;
        for pair in entries.range(range).map_err(into_io)? {
            if bytes > bytes_max {
                break;
            }
            let (index, frame) = pair.map_err(into_io)?;
            bytes += frame.value().len();
            found.push((index.value(), Bytes::copy_from_slice(frame.value())));
        }
        Ok(found)
    }

    fn slot(&self, slot: Slot) -> io::Result<Option<Bytes>> {
        let view = self.db.begin_read().map_err(into_io)?;
        let slots = view.open_table(SLOTS).map_err(into_io)?;
        let value = slots.get(slot_key(slot)).map_err(into_io)?;
        Ok(value.map(|value| Bytes::copy_from_slice(value.value())))
    }

    fn bounds(&self) -> io::Result<Option<(u64, u64)>> {
        let view = self.db.begin_read().map_err(into_io)?;
        let entries = view.open_table(ENTRIES).map_err(into_io)?;
        let first = entries.first().map_err(into_io)?.map(|(index, _)| index.value());
        let last = entries.last().map_err(into_io)?.map(|(index, _)| index.value());
        Ok(first.zip(last))
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(index: u64, bytes: &[u8]) -> Batch {
        Batch { entries: vec![(index, Bytes::copy_from_slice(bytes))], ..Batch::default() }
    }

    #[test]
    fn a_database_that_was_never_finished_is_begun_again() {
        let dir = tempfile::tempdir().expect("temporary directory");
        fs::write(dir.path().join(UNFINISHED_FILE), b"half a database").expect("plant the file");
        let engine = RedbEngine::open(dir.path()).expect("opens");
        engine.write(put(1, b"kept")).expect("write");
        assert!(!dir.path().join(UNFINISHED_FILE).exists());
        assert_eq!(engine.read(0..=9, usize::MAX).expect("read"), vec![(1, Bytes::from_static(b"kept"))]);
    }

    #[test]
    fn what_was_closed_without_a_barrier_is_whole_or_gone() {
        let dir = tempfile::tempdir().expect("temporary directory");
        {
            let engine = RedbEngine::open(dir.path()).expect("opens");
            engine.write(put(1, b"kept")).expect("write");
            engine.barrier().expect("barrier");
            engine.write(put(2, &[7; 100_000])).expect("write");
        }
        let engine = RedbEngine::open(dir.path()).expect("opens again");
        let found = engine.read(0..=9, usize::MAX).expect("read");
        assert_eq!(found[0], (1, Bytes::from_static(b"kept")));
        assert!(found.get(1).is_none_or(|second| *second == (2, Bytes::from(vec![7; 100_000]))));
    }

    #[test]
    fn damage_is_an_error_and_not_a_panic() {
        let dir = tempfile::tempdir().expect("temporary directory");
        {
            let engine = RedbEngine::open(dir.path()).expect("opens");
            for index in 0..200 {
                engine.write(put(index, &[index as u8; 500])).expect("write");
            }
            engine.barrier().expect("barrier");
        }
        let path = dir.path().join(DATA_FILE);
        let mut bytes = fs::read(&path).expect("reads");
        bytes.iter_mut().skip(8192).step_by(1024).for_each(|byte| *byte ^= 1);
        fs::write(&path, bytes).expect("damages");
        assert_eq!(RedbEngine::open(dir.path()).expect_err("refuses").kind(), io::ErrorKind::InvalidData);
    }
}
