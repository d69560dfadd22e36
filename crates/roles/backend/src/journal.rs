//! The journal of a backend: off by default, bounded, and never in the way of a batch.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use nix::time::{ClockId, clock_gettime};
use symphony_protocol::journal::Record;

/// Records waiting for the file: at ten thousand batches per second, a third of a second of them.
const RECORDS_WAITING_MAX: usize = 8192;

/// Takes records; another thread writes them.
#[derive(Debug)]
pub(crate) struct Journal {
    records: SyncSender<Record>,
    clock: MachineClock,
    missed: u64,
}

/// Converts this process's instants to the machine's CLOCK_MONOTONIC, from which they are made.
#[derive(Clone, Copy, Debug)]
struct MachineClock {
    origin: Instant,
    origin_ns: u64,
}

impl MachineClock {
    fn read() -> io::Result<Self> {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
        let origin_ns = u64::try_from(now.tv_sec()).unwrap_or(0) * 1_000_000_000 + now.tv_nsec() as u64;
        Ok(Self { origin: Instant::now(), origin_ns })
    }

    fn nanos(&self, at: Instant) -> u64 {
        let since = |later: Instant, earlier: Instant| (later - earlier).as_nanos() as u64;
        match at.checked_duration_since(self.origin) {
            Some(_) => self.origin_ns + since(at, self.origin),
            None => self.origin_ns.saturating_sub(since(self.origin, at)),
        }
    }
}

impl Journal {
    /// Appends to `path`, up to `bytes_max` bytes in total.
    ///
    /// # Errors
    /// If the file cannot be opened or the thread is refused.
    pub(crate) fn open(path: &Path, bytes_max: u64) -> io::Result<Self> {
        let clock = MachineClock::read()?;
        let mut file = File::options().create(true).append(true).read(true).open(path)?;
        let written = file.metadata()?.len();
        // A killed process may have left half a line, which must not join the next one.
        if written > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        let (records, waiting) = sync_channel(RECORDS_WAITING_MAX);
        let mut writer = Writer { file: BufWriter::new(file), room: bytes_max.saturating_sub(written), missed: 0 };
        std::thread::Builder::new().name("journal".to_owned()).spawn(move || {
            if let Err(error) = writer.run(&waiting) {
                tracing::error!(%error, "the journal ends");
            }
        })?;
        Ok(Self { records, clock, missed: 0 })
    }

    /// An instant as the journal writes it.
    pub(crate) fn nanos(&self, at: Instant) -> u64 {
        self.clock.nanos(at)
    }

    /// Queues a record; never waits. Records without room are counted in the journal itself.
    pub(crate) fn append(&mut self, record: Record) {
        if self.missed > 0 && self.records.try_send(Record::Missed { records: self.missed }).is_ok() {
            self.missed = 0;
        }
        if self.missed > 0 {
            self.missed += 1;
        } else if let Err(TrySendError::Full(_)) = self.records.try_send(record) {
            self.missed = 1;
        }
    }
}

struct Writer {
    file: BufWriter<File>,
    /// Bytes that the file may still grow by.
    room: u64,
    missed: u64,
}

/// Reserved for the final line, which records that the journal is full.
const LAST_WORDS_BYTES: u64 = 64;

impl Writer {
    fn run(&mut self, waiting: &Receiver<Record>) -> io::Result<()> {
        while let Ok(first) = waiting.recv() {
            self.write(&first)?;
            while let Ok(next) = waiting.try_recv() {
                self.write(&next)?;
            }
            // Nothing stays buffered while idle: a kill loses only what was about to be written.
            self.file.flush()?;
        }
        Ok(())
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        if self.missed == 0 && line.len() as u64 + LAST_WORDS_BYTES <= self.room {
            self.room -= line.len() as u64;
            return self.file.write_all(&line);
        }
        self.missed += 1;
        if self.missed == 1 {
            tracing::warn!("the journal is full; the backend serves on without it");
            let mut line = serde_json::to_vec(&Record::Missed { records: 1 })?;
            line.push(b'\n');
            return self.file.write_all(&line);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lines(path: &Path) -> Vec<Record> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn accepted(sequence: u64) -> Record {
        Record::Accepted { at_ns: 1, gpu: 1, node: 2, token: 3, sequence }
    }

    /// Waits until the writer has written `n` lines.
    fn wait_for(path: &Path, n: usize) -> Vec<Record> {
        let give_up = Instant::now() + Duration::from_secs(30);
        while lines(path).len() < n {
            assert!(Instant::now() < give_up, "{:?}", lines(path));
            std::thread::sleep(Duration::from_millis(5));
        }
        lines(path)
    }

    #[test]
    fn boots_follow_each_other_in_one_file_and_times_are_the_machines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        for sequence in 1..=2 {
            let begun = Instant::now();
            let mut journal = Journal::open(&path, 1 << 20).unwrap();
            let (now, machine) = (Instant::now(), clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
            let machine = Duration::new(machine.tv_sec() as u64, machine.tv_nsec() as u32);
            let off = machine.abs_diff(Duration::from_nanos(journal.nanos(now)));
            // Two readings of the clock differ by no more than the whole test takes.
            assert!(off <= begun.elapsed(), "the same clock, not another origin: {off:?}");
            assert_eq!(journal.nanos(now + Duration::from_secs(1)), journal.nanos(now) + 1_000_000_000);
            journal.append(accepted(sequence));
            wait_for(&path, sequence as usize);
        }
        assert_eq!(lines(&path), [accepted(1), accepted(2)]);
        std::fs::write(&path, r#"{"what":"acc"#).unwrap();
        drop(Journal::open(&path, 1 << 20).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"what\":\"acc\n", "half a line of a killed process");
    }

    #[test]
    fn a_full_journal_says_so_once_and_grows_no_further() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut journal = Journal::open(&path, 512).unwrap();
        for sequence in 0..100 {
            journal.append(accepted(sequence));
        }
        let give_up = Instant::now() + Duration::from_secs(30);
        while !matches!(lines(&path).last(), Some(Record::Missed { records: 1 })) {
            assert!(Instant::now() < give_up, "{:?}", lines(&path));
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(journal);
        assert!(std::fs::metadata(&path).unwrap().len() <= 512);
    }
}
