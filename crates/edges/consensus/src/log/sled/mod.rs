//! The default engine: sled 0.34, with measures that make it durable (docs/adr/0002).

mod generation;

use std::fs::{self, File};
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use super::engine::{Batch, LogEngine, Slot};
use super::lock_wait::retry_while_locked;
use crate::limits::{ENGINE_CACHE_BYTES, VALUE_BYTES_MAX};

/// sled's file; fsync is per inode, so syncing it through our own descriptor covers sled's writes.
const DATA_FILE: &str = "db";
const SNAPSHOT_PREFIX: &str = "snap.";
const TORN_SUFFIX: &str = ".generating";
const ASIDE_PREFIX: &str = "aside-";

/// A flush that has not ended after this time may never end, and another one is started; on a slow disk several wait
/// together.
const FLUSH_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// The most flushes that wait together.
const FLUSHES_MAX: u32 = 8;

const ENTRY_PREFIX: u8 = b'e';
const ENTRY_KEY_BYTES: usize = 1 + 8 + 2;

/// A sled database with a real barrier.
#[derive(Debug)]
pub(crate) struct SledEngine {
    db: sled::Db,
    data: File,
    /// Dropped last: the next open copies the files.
    _lock: File,
    #[cfg(feature = "crash-suite")]
    own_sync: bool,
}

impl SledEngine {
    /// Opens or creates the database in `dir`, by a copy (`generation.rs`).
    ///
    /// A torn `snap.*.generating` is removed first: sled would take it for its newest snapshot and refuse to open. When
    /// sled still sees corruption, its snapshots are moved aside once (they only shorten recovery; the data is in its
    /// log) and the second answer is final.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let ((db, data), lock) = generation::open_copy(dir, open_in)?;
        Ok(Self {
            db,
            data,
            _lock: lock,
            #[cfg(feature = "crash-suite")]
            own_sync: true,
        })
    }

    /// Passes the writes to the file.
    ///
    /// sled wakes the waiters of a failed write, but not a waiter that comes later: that flush never ends. A later
    /// flush learns of the failure at once, and any flush that began after the writes covers them all; so the first to
    /// end decides.
    fn flush(&self) -> io::Result<()> {
        let (ended, end) = mpsc::channel();
        let begin = || {
            let (db, ended) = (self.db.clone(), ended.clone());
            let flush = move || drop(ended.send(db.flush()));
            thread::Builder::new().name("sled-flush".to_owned()).spawn(flush)
        };
        for _ in 1..FLUSHES_MAX {
            drop(begin()?);
            if let Ok(flushed) = end.recv_timeout(FLUSH_AGAIN_AFTER) {
                return flushed.map(drop).map_err(into_io);
            }
        }
        drop(begin()?);
        end.recv().map_err(io::Error::other)?.map(drop).map_err(into_io)
    }

    /// A planted bug: sled's own flush counts as a barrier, in the whole process.
    #[cfg(feature = "crash-suite")]
    pub(crate) fn without_own_sync(self) -> Self {
        symphony_file_sync::promise_nothing();
        Self { own_sync: false, ..self }
    }
}

fn open_in(dir: &Path) -> io::Result<(sled::Db, File)> {
    remove_torn_snapshots(dir)?;
    let db = match open_unlocked(dir) {
        Err(sled::Error::Corruption { at, .. }) => {
            tracing::warn!(dir = %dir.display(), ?at, "log store is corrupt, retrying without its snapshots");
            set_snapshots_aside(dir)?;
            open_unlocked(dir).map_err(into_io)?
        }
        other => other.map_err(into_io)?,
    };
    db.flush().map_err(into_io)?;
    let data = File::open(dir.join(DATA_FILE))?;
    Ok((db, data))
}

fn open_unlocked(dir: &Path) -> sled::Result<sled::Db> {
    let open = || {
        sled::Config::new()
            .path(dir)
            .mode(sled::Mode::LowSpace)
            .cache_capacity(ENGINE_CACHE_BYTES as u64)
            // Rewriting half-empty segments happens only on sled's own flusher thread, so it stays on.
            .flush_every_ms(Some(500))
            .open()
    };
    retry_while_locked(open, |error| matches!(error, sled::Error::Io(error) if is_locked(error)))
}

/// sled wraps the lock's error in text.
fn is_locked(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.to_string().contains("could not acquire lock")
}

fn snapshots(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for file in fs::read_dir(dir)? {
        let file = file?;
        if let Some(name) = file.file_name().to_str()
            && name.starts_with(SNAPSHOT_PREFIX)
        {
            found.push((name.to_owned(), file.path()));
        }
    }
    Ok(found)
}

fn remove_torn_snapshots(dir: &Path) -> io::Result<()> {
    for (name, path) in snapshots(dir)? {
        if name.ends_with(TORN_SUFFIX) {
            tracing::warn!(file = %path.display(), "removing a snapshot that a crash left unfinished");
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn set_snapshots_aside(dir: &Path) -> io::Result<()> {
    for (name, path) in snapshots(dir)? {
        fs::rename(path, dir.join(format!("{ASIDE_PREFIX}{name}")))?;
    }
    File::open(dir)?.sync_all()
}

fn into_io(error: sled::Error) -> io::Error {
    match error {
        sled::Error::Io(error) => error,
        sled::Error::Corruption { .. } => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
        other => io::Error::other(other.to_string()),
    }
}

/// Entries sort by index, then by piece.
fn entry_key(index: u64, piece: u16) -> [u8; ENTRY_KEY_BYTES] {
    let mut key = [ENTRY_PREFIX; ENTRY_KEY_BYTES];
    key[1..9].copy_from_slice(&index.to_be_bytes());
    key[9..].copy_from_slice(&piece.to_be_bytes());
    key
}

fn key_index(key: &[u8]) -> io::Result<u64> {
    let wrong = || {
        let text = format!("log store has a key of {} bytes, expected {ENTRY_KEY_BYTES}", key.len());
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    if key.len() != ENTRY_KEY_BYTES {
        return Err(wrong());
    }
    let index: [u8; 8] = key[1..9].try_into().map_err(|_| wrong())?;
    Ok(u64::from_be_bytes(index))
}

fn slot_key(slot: Slot) -> &'static [u8] {
    match slot {
        Slot::Stamp => b"s/stamp",
        Slot::Vote => b"s/vote",
        Slot::Committed => b"s/committed",
        Slot::Purged => b"s/purged",
        Slot::Next => b"s/next",
        Slot::Step => b"s/step",
    }
}

fn key_range(range: &RangeInclusive<u64>) -> RangeInclusive<[u8; ENTRY_KEY_BYTES]> {
    entry_key(*range.start(), 0)..=entry_key(*range.end(), u16::MAX)
}

impl LogEngine for SledEngine {
    fn write(&self, batch: Batch) -> io::Result<()> {
        let mut changes = sled::Batch::default();
        if let Some(range) = batch.remove.filter(|range| !range.is_empty()) {
            for key in self.db.range(key_range(&range)).keys() {
                changes.remove(key.map_err(into_io)?);
            }
        }
        for (index, frame) in batch.entries {
            for (piece, bytes) in frame.chunks(VALUE_BYTES_MAX).enumerate() {
                let piece = u16::try_from(piece).map_err(|_| {
                    let text = format!("entry {index} has {} bytes, too many for one log store entry", frame.len());
                    io::Error::new(io::ErrorKind::InvalidInput, text)
                })?;
                changes.insert(entry_key(index, piece).as_slice(), bytes);
            }
        }
        for (slot, frame) in batch.slots {
            changes.insert(slot_key(slot), frame.as_ref());
        }
        self.db.apply_batch(changes).map_err(into_io)
    }

    fn barrier(&self) -> io::Result<()> {
        // `flush()` passes everything to the file, and syncs each of its writes: on Linux by a `sync_file_range` with
        // the guarantees that sled expects (symphony-file-sync).
        let before = symphony_file_sync::calls();
        self.flush()?;
        #[cfg(feature = "crash-suite")]
        if !self.own_sync {
            return Ok(());
        }
        // Either everything was written before, or this sled does not call our sync: sync here.
        if symphony_file_sync::calls() == before { self.data.sync_data() } else { Ok(()) }
    }

    fn read(&self, range: RangeInclusive<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>> {
        let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut bytes = 0;
        if range.is_empty() {
            return Ok(Vec::new());
        }
        for pair in self.db.range(key_range(&range)) {
            let (key, value) = pair.map_err(into_io)?;
            let index = key_index(&key)?;
            match found.last_mut() {
                Some((last, frame)) if *last == index => frame.extend_from_slice(&value),
                _ if bytes > bytes_max => break,
                _ => found.push((index, value.to_vec())),
            }
            bytes += value.len();
        }
        Ok(found.into_iter().map(|(index, frame)| (index, frame.into())).collect())
    }

    fn slot(&self, slot: Slot) -> io::Result<Option<Bytes>> {
        let value = self.db.get(slot_key(slot)).map_err(into_io)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn bounds(&self) -> io::Result<Option<(u64, u64)>> {
        let mut keys = self.db.range(key_range(&(0..=u64::MAX))).keys();
        let first = keys.next().transpose().map_err(into_io)?;
        let last = keys.next_back().transpose().map_err(into_io)?;
        match (first, last) {
            (None, _) => Ok(None),
            (Some(only), None) => Ok(Some((key_index(&only)?, key_index(&only)?))),
            (Some(first), Some(last)) => Ok(Some((key_index(&first)?, key_index(&last)?))),
        }
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        self.db.size_on_disk().map_err(into_io)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(index: u64, bytes: &[u8]) -> Batch {
        Batch { entries: vec![(index, Bytes::copy_from_slice(bytes))], ..Batch::default() }
    }

    /// What a crash while sled writes its own snapshot leaves behind.
    #[test]
    fn a_torn_snapshot_of_sled_does_not_keep_it_closed() {
        let dir = tempfile::tempdir().expect("temporary directory");
        {
            let engine = SledEngine::open(dir.path()).expect("first open");
            engine.write(put(1, b"kept")).expect("write");
            engine.barrier().expect("barrier");
        }
        let torn = dir.path().join("1/snap.00000000FFFFFFFF.generating");
        fs::write(&torn, b"half a snap").expect("plant the torn file");

        let engine = SledEngine::open(dir.path()).expect("open beside a torn snapshot");
        assert!(!dir.path().join("2/snap.00000000FFFFFFFF.generating").exists());
        let aside = dir.path().join("2/aside-snap.00000000FFFFFFFF.generating");
        assert!(!aside.exists(), "sled stumbled over the torn file before it was removed");
        assert_eq!(engine.read(0..=9, usize::MAX).expect("read"), vec![(1, Bytes::from_static(b"kept"))]);
    }

    #[test]
    fn a_corrupt_snapshot_of_sled_is_set_aside() {
        let dir = tempfile::tempdir().expect("temporary directory");
        {
            let engine = SledEngine::open(dir.path()).expect("first open");
            engine.write(put(1, b"kept")).expect("write");
            engine.barrier().expect("barrier");
        }
        fs::write(dir.path().join("1/snap.00000000FFFFFFFF"), b"not a snapshot").expect("plant the corrupt file");

        let engine = SledEngine::open(dir.path()).expect("open beside a corrupt snapshot");
        assert!(dir.path().join("2/aside-snap.00000000FFFFFFFF").exists());
        assert_eq!(engine.read(0..=9, usize::MAX).expect("read"), vec![(1, Bytes::from_static(b"kept"))]);
    }

    /// The order in which sled reuses segments depends on it.
    #[test]
    #[cfg(target_os = "linux")]
    fn each_write_of_sled_is_synced() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let engine = SledEngine::open(dir.path()).expect("open");
        for index in 0..5 {
            let before = symphony_file_sync::calls();
            engine.write(put(index, b"some entry")).expect("write");
            engine.barrier().expect("barrier");
            assert!(symphony_file_sync::calls() > before, "sled synced past us: is the function replaced here?");
        }
    }

    /// sled writes a whole leaf of its tree at a time; a leaf that is too large goes to a file that is never synced.
    #[test]
    fn no_leaf_grows_so_large_that_it_leaves_the_log() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let engine = SledEngine::open(dir.path()).expect("open");
        for index in 0..200 {
            engine.write(put(index, &vec![index as u8; 1 + (index as usize * 7919) % 150_000])).expect("write");
            if index % 7 == 0 {
                engine.write(Batch { remove: Some(index / 2..=index / 2 + 3), ..Batch::default() }).expect("remove");
            }
            engine.barrier().expect("barrier");
            assert_eq!(fs::read_dir(dir.path().join("1/blobs")).expect("lists").count(), 0, "after entry {index}");
        }
    }

    #[test]
    fn large_values_are_split_and_come_back_whole() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let engine = SledEngine::open(dir.path()).expect("open");
        let large: Vec<u8> = (0..3 * VALUE_BYTES_MAX + 17).map(|i| i as u8).collect();
        engine.write(put(4, &large)).expect("write");
        engine.write(put(5, b"small")).expect("write");
        engine.barrier().expect("barrier");
        assert!(engine.db.iter().values().all(|value| value.expect("value").len() <= VALUE_BYTES_MAX));
        assert_eq!(
            engine.read(4..=5, usize::MAX).expect("read"),
            vec![(4, Bytes::from(large)), (5, Bytes::from_static(b"small"))]
        );
        assert_eq!(engine.read(4..=5, 10).expect("bounded read").len(), 1);
        assert_eq!(engine.bounds().expect("bounds"), Some((4, 5)));
        engine.write(Batch { remove: Some(0..=4), ..Batch::default() }).expect("remove");
        assert_eq!(engine.bounds().expect("bounds"), Some((5, 5)));
    }
}
