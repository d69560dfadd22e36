//! The log as Raft sees it: a view in memory, the writer thread behind it.
//!
//! Writes change the view at once, so that an entry is readable when `append` returns, and are queued; the waiter is
//! notified after the barrier. Reads take recent entries from the view, and older ones, which are certainly written,
//! from the engine.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use tokio::sync::oneshot;

use super::engine::LogEngine;
use super::frame::{self, Stamp};
use super::pulse::Pulse;
use super::recovery::{self, Recovered, RecoveryError};
use super::simulated::SimulatedDisk;
use super::witness::Witness;
use super::writer::{Done, Job, Writer, closed};
use crate::fault::OnDiskError;
use crate::limits::{LOG_CLOSES_WITHIN, READ_BYTES_MAX, TAIL_BYTES_MAX};
use crate::raft_types::{self, EntryOf, LogIdOf, TypeConfig, VoteOf};
use crate::record::{Position, Record};

/// An engine this many times larger than its live contents has stopped reclaiming space.
const DISK_ALARM_FACTOR: u64 = 10;
/// Below this size the ratio means nothing: engines allocate whole segments.
const DISK_ALARM_FLOOR_BYTES: u64 = 256 * 1024 * 1024;

#[derive(Debug)]
struct Recent {
    record: Record,
    weight: usize,
    /// The number of its append.
    sequence: u64,
}

#[derive(Debug)]
struct View {
    known: Recovered,
    /// The newest entries, contiguous up to the last.
    tail: VecDeque<Recent>,
    tail_bytes: usize,
    sequence: u64,
    /// `None` once closed: the files are released even while the library still holds readers.
    engine: Option<Arc<dyn LogEngine>>,
}

impl View {
    fn next_index(&self) -> u64 {
        self.known.last.map_or(0, |at| at.index.saturating_add(1))
    }

    fn first_index(&self) -> u64 {
        self.known.purged.map_or(0, |at| at.index.saturating_add(1))
    }

    fn push(&mut self, records: &[Record], written: u64) {
        self.sequence += 1;
        for record in records {
            let weight = record.weight();
            self.tail_bytes += weight;
            self.tail.push_back(Recent { record: record.clone(), weight, sequence: self.sequence });
            self.known.last = Some(record.at);
        }
        // Only entries that the engine can already serve may leave the memory.
        while self.tail_bytes > TAIL_BYTES_MAX
            && let Some(oldest) = self.tail.front().filter(|oldest| oldest.sequence <= written)
        {
            self.tail_bytes -= oldest.weight;
            self.tail.pop_front();
        }
    }

    fn truncate(&mut self, next: u64, last: Option<Position>) {
        while let Some(recent) = self.tail.back().filter(|recent| recent.record.at.index >= next) {
            self.tail_bytes -= recent.weight;
            self.tail.pop_back();
        }
        self.known.last = last;
    }

    fn purge(&mut self, through: Position) {
        while let Some(recent) = self.tail.front().filter(|recent| recent.record.at.index <= through.index) {
            self.tail_bytes -= recent.weight;
            self.tail.pop_front();
        }
        self.known.purged = Some(through);
        if self.known.last.is_none_or(|last| last.index <= through.index) {
            self.known.last = Some(through);
        }
    }
}

/// The log of one node; a cheap handle.
#[derive(Debug, Clone)]
pub(crate) struct LogStore {
    view: Arc<Mutex<View>>,
    writer: Writer,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
    fault: OnDiskError,
}

impl LogStore {
    /// Recovers the contents of `engine` and starts its writer thread. An engine in memory has no witness. Blocks on
    /// the disk.
    pub(crate) fn open(
        engine: Arc<dyn LogEngine>,
        witness: Option<Witness>,
        stamp: &Stamp,
        fault: OnDiskError,
    ) -> Result<Self, RecoveryError> {
        let witnessed = witness.as_ref().map_or(0, Witness::step);
        let known = recovery::recover(engine.as_ref(), stamp, witnessed)?;
        let (writer, thread) = Writer::start(engine.clone(), witness, (&known).into(), fault)?;
        Ok(Self::over(engine, known, writer, Some(thread), fault))
    }

    /// Opens the log over a simulated disk, with a task in place of the thread. Must be called inside a tokio runtime.
    pub(crate) fn open_simulated(
        disk: &SimulatedDisk,
        stamp: &Stamp,
        fault: OnDiskError,
    ) -> Result<Self, RecoveryError> {
        let engine: Arc<dyn LogEngine> = Arc::new(disk.open());
        let known = recovery::recover(engine.as_ref(), stamp, 0)?;
        let timed = disk.clone();
        let writer = Writer::start_task(engine.clone(), (&known).into(), fault, move || timed.barrier_time());
        Ok(Self::over(engine, known, writer, None, fault))
    }

    fn over(
        engine: Arc<dyn LogEngine>,
        known: Recovered,
        writer: Writer,
        thread: Option<JoinHandle<()>>,
        fault: OnDiskError,
    ) -> Self {
        let view = View { known, tail: VecDeque::new(), tail_bytes: 0, sequence: 0, engine: Some(engine) };
        Self { view: Arc::new(Mutex::new(view)), writer, thread: Arc::new(Mutex::new(thread)), fault }
    }

    /// The state found at the start, with later changes.
    pub(crate) fn known(&self) -> Recovered {
        self.view().known.clone()
    }

    /// Whether and since when a write has been waiting for the disk.
    pub(crate) fn pulse(&self) -> Arc<Pulse> {
        self.writer.pulse()
    }

    /// Queues entries that follow the last one; `done` is called once they are durable, or cannot be.
    pub(crate) async fn push(&self, records: Vec<Record>, done: Done) -> io::Result<()> {
        let sequence = {
            let mut view = self.view();
            let written = self.writer.written();
            view.push(&records, written);
            view.sequence
        };
        self.writer.submit(Job::Append { sequence, records, done }).await
    }

    /// Writes what is queued and releases the files; gives up after [`LOG_CLOSES_WITHIN`] if the disk does not answer.
    pub(crate) async fn close(&self) {
        if tokio::time::timeout(LOG_CLOSES_WITHIN, self.finish()).await.is_err() {
            tracing::error!("disk does not answer; the log is left as it is after {LOG_CLOSES_WITHIN:?}");
        }
    }

    async fn finish(&self) {
        // An error means that the thread has already ended, which is the goal.
        let _ = self.writer.submit(Job::Close).await;
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let engine = self.view().engine.take();
        // A simulated disk has no thread.
        let Some(thread) = thread else { return };
        // Both wait for the disk: the writer for its queue, the engine for its own unwritten data.
        let ended = tokio::task::spawn_blocking(move || {
            let ended = thread.join();
            drop(engine);
            ended
        });
        if !matches!(ended.await, Ok(Ok(()))) {
            tracing::error!("log writer thread panicked");
        }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Entries `start..next` that exist, in order, at least one and then up to `bytes_max`.
    fn read(&self, start: u64, next: u64, bytes_max: usize) -> io::Result<Vec<EntryOf>> {
        let (engine, from, tail_from, recent) = {
            let view = self.view();
            let from = start.max(view.first_index());
            let next = next.min(view.next_index());
            if from >= next {
                return Ok(Vec::new());
            }
            let tail_from = view.tail.front().map_or(view.next_index(), |recent| recent.record.at.index);
            let recent: Vec<Record> = if bytes_max < usize::MAX && from < tail_from {
                Vec::new() // a bounded read that starts in the engine rarely reaches the tail; the next one will
            } else {
                let skip = usize::try_from(from.saturating_sub(tail_from)).unwrap_or(usize::MAX);
                let tail = view.tail.iter().skip(skip).take_while(|recent| recent.record.at.index < next);
                take_bounded(tail, bytes_max)
            };
            let engine = view.engine.clone().ok_or_else(closed)?;
            (engine, from, tail_from.min(next), recent)
        };
        let mut records = Vec::new();
        if from < tail_from {
            let stored = read_stored(engine.as_ref(), from..=tail_from - 1, bytes_max);
            records = stored.inspect_err(|error| self.fault.report("log store", error))?;
        }
        records.extend(recent);
        let mut expected = records.first().map(|record| record.at.index);
        for record in &records {
            if expected != Some(record.at.index) {
                return Err(invalid(format!("log has entry {} where {expected:?} is expected", record.at.index)));
            }
            expected = record.at.index.checked_add(1);
        }
        records.into_iter().map(|record| raft_types::entry(record).map_err(invalid)).collect()
    }

    fn alarm_on_disk_size(&self) {
        let (engine, entries, weight) = {
            let view = self.view();
            let entries = view.next_index().saturating_sub(view.first_index());
            if view.tail.is_empty() {
                return; // nothing to estimate an entry's size by
            }
            (view.engine.clone(), entries, (view.tail_bytes / view.tail.len()) as u64)
        };
        let live = entries.saturating_mul(weight);
        if let Some(Ok(disk)) = engine.map(|engine| engine.disk_bytes())
            && disk > DISK_ALARM_FLOOR_BYTES
            && disk > live.saturating_mul(DISK_ALARM_FACTOR)
        {
            tracing::warn!(disk_bytes = disk, live_bytes = live, "log store does not reclaim its space");
        }
    }
}

fn read_stored(engine: &dyn LogEngine, range: RangeInclusive<u64>, bytes_max: usize) -> io::Result<Vec<Record>> {
    let frames = engine.read(range, bytes_max)?.into_iter();
    let decode =
        |(index, bytes)| frame::decode_record(&bytes).map_err(|error| invalid(format!("entry {index}: {error}")));
    frames.map(|frame| decode(frame).map(|(record, _)| record)).collect()
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn take_bounded<'a>(tail: impl Iterator<Item = &'a Recent>, bytes_max: usize) -> Vec<Record> {
    let mut taken = Vec::new();
    let mut bytes = 0;
    for recent in tail {
        if bytes > bytes_max {
            break;
        }
        bytes += recent.weight;
        taken.push(recent.record.clone());
    }
    taken
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<EntryOf>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let next = match range.end_bound() {
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(next) => *next,
            Bound::Unbounded => u64::MAX,
        };
        self.read(start, next, usize::MAX)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<EntryOf>, io::Error> {
        self.read(start, end, READ_BYTES_MAX)
    }

    async fn read_vote(&mut self) -> Result<Option<VoteOf>, io::Error> {
        Ok(self.view().known.vote.map(Into::into))
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let view = self.view();
        Ok(LogState {
            last_purged_log_id: view.known.purged.map(Into::into),
            last_log_id: view.known.last.map(Into::into),
        })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf) -> Result<(), io::Error> {
        let ballot = (*vote).into();
        let (finished, finish) = oneshot::channel();
        let done = Box::new(move |result| {
            // The waiter is gone only if its task was dropped; the vote is still stored.
            let _ = finished.send(result);
        });
        self.writer.submit(Job::Vote { ballot, done }).await?;
        finish.await.map_err(|_| closed())??;
        self.view().known.vote = Some(ballot);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf>) -> Result<(), io::Error> {
        let Some(at) = committed.map(Position::from) else { return Ok(()) };
        self.view().known.committed = Some(at);
        self.writer.submit(Job::Committed(at)).await
    }

    async fn read_committed(&mut self) -> Result<Option<LogIdOf>, io::Error> {
        Ok(self.view().known.committed.map(Into::into))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = EntryOf> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let records: Vec<Record> = entries.into_iter().map(Record::from).collect();
        self.push(records, Box::new(move |result| callback.io_completed(result))).await
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogIdOf>) -> Result<(), io::Error> {
        let last = last_log_id.map(Position::from);
        let (first, next) = {
            let mut view = self.view();
            let first = last.map_or(view.first_index(), |at| at.index.saturating_add(1));
            let next = view.next_index();
            if first >= next {
                return Ok(());
            }
            let last = last.or(view.known.purged);
            view.truncate(first, last);
            (first, next)
        };
        // Not awaited: any later append is queued behind it.
        self.writer.submit(Job::Truncate { first, next }).await
    }

    async fn purge(&mut self, log_id: LogIdOf) -> Result<(), io::Error> {
        let through = Position::from(log_id);
        let first = {
            let mut view = self.view();
            let first = view.first_index();
            view.purge(through);
            first
        };
        self.alarm_on_disk_size();
        self.writer.submit(Job::Purge { first, through }).await
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use openraft::storage::RaftLogStorageExt;
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::log::engine::{Batch, Slot};
    use crate::log::memory::MemoryEngine;
    use crate::log::sled::SledEngine;
    use crate::record::{Ballot, Body};

    fn open(dir: &TempDir) -> LogStore {
        let engine = SledEngine::open(&dir.path().join("log")).expect("engine opens");
        let stamp = Stamp { cluster: "blue".into(), node: 1 };
        LogStore::open(Arc::new(engine), None, &stamp, OnDiskError::Stop).expect("store opens")
    }

    fn at(term: u64, index: u64) -> Position {
        Position { term, node: 1, index }
    }

    fn command(term: u64, index: u64, length: usize) -> EntryOf {
        let body = Body::Command(vec![index as u8; length].into());
        raft_types::entry(Record { at: at(term, index), body }).expect("entry")
    }

    async fn indexes(store: &mut LogStore) -> Vec<(u64, u64)> {
        let entries = store.try_get_log_entries(0..u64::MAX).await.expect("reads");
        entries.into_iter().map(|entry| (entry.log_id.leader_id.term, entry.log_id.index)).collect()
    }

    #[tokio::test]
    async fn vote_log_and_marks_survive_a_restart() {
        let dir = TempDir::new().expect("temporary directory");
        let ballot = Ballot { term: 7, node: 2, committed: true };
        {
            let mut store = open(&dir);
            store.save_vote(&ballot.into()).await.expect("saves");
            store.blocking_append((0..10).map(|index| command(1, index, 10))).await.expect("appends");
            store.purge(at(1, 2).into()).await.expect("purges");
            store.truncate_after(Some(at(1, 6).into())).await.expect("truncates");
            store.blocking_append([command(2, 7, 10)]).await.expect("appends");
            store.save_committed(Some(at(1, 5).into())).await.expect("saves");
            store.close().await;
        }
        let mut store = open(&dir);
        let known = store.known();
        assert_eq!(known.vote, Some(ballot));
        assert_eq!((known.purged, known.last, known.committed), (Some(at(1, 2)), Some(at(2, 7)), Some(at(1, 5))));
        assert_eq!(indexes(&mut store).await, [(1, 3), (1, 4), (1, 5), (1, 6), (2, 7)]);
        store.close().await;
    }

    #[tokio::test]
    async fn old_entries_leave_the_memory_and_are_read_from_the_disk() {
        let dir = TempDir::new().expect("temporary directory");
        let mut store = open(&dir);
        let length = 1024 * 1024;
        let count = 3 * TAIL_BYTES_MAX / length;
        for index in 0..count as u64 {
            store.blocking_append([command(1, index, length)]).await.expect("appends");
        }
        assert!(store.view().tail.len() < count, "everything is still in memory");
        assert_eq!(indexes(&mut store).await.len(), count);
        let some = store.limited_get_log_entries(0, count as u64).await.expect("reads");
        assert!((1..=2).contains(&some.len()), "a bounded read gave {} entries of 1 MiB", some.len());
        assert_eq!(some[0], command(1, 0, length));

        // Overwrites entries that are only on disk: the old ones must never be read again.
        store.truncate_after(Some(at(1, 0).into())).await.expect("truncates");
        store.blocking_append([command(2, 1, 1)]).await.expect("appends");
        assert_eq!(indexes(&mut store).await, [(1, 0), (2, 1)]);
        store.close().await;
        assert_eq!(indexes(&mut open(&dir)).await, [(1, 0), (2, 1)]);
    }

    /// Changes of a log between two restarts.
    #[derive(Clone, Debug)]
    enum Change {
        Append(u64),
        /// Only this many of the last entries are removed.
        Truncate(u64),
        /// This many of the first entries are removed; possibly beyond the last one, as after a snapshot.
        Purge(u64),
        Restart,
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            (1..5_u64).prop_map(Change::Append),
            (0..4_u64).prop_map(Change::Truncate),
            (0..6_u64).prop_map(Change::Purge),
            Just(Change::Restart),
        ]
    }

    async fn lives(changes: Vec<Change>) {
        let engine = Arc::new(MemoryEngine::default());
        let stamp = Stamp { cluster: "blue".into(), node: 1 };
        let open = || LogStore::open(engine.clone(), None, &stamp, OnDiskError::Stop).expect("whole and in one chain");
        let (mut store, mut term) = (open(), 1);
        for change in changes.into_iter().chain([Change::Restart]) {
            let known = store.known();
            let next = known.last.map_or(0, |last| last.index + 1);
            let first = known.purged.map_or(0, |purged| purged.index + 1);
            match change {
                Change::Append(count) => {
                    let entries = (next..next + count).map(|index| command(term, index, 3));
                    store.blocking_append(entries).await.expect("appends");
                }
                Change::Truncate(count) => {
                    // A new leader, with different entries.
                    term += 1;
                    let from = next.saturating_sub(count).max(first);
                    let kept = from.checked_sub(1).filter(|_| from > first);
                    let kept = kept.and_then(|last| store.read(last, last + 1, usize::MAX).expect("reads").pop());
                    let last = kept.map(|entry| entry.log_id).or(known.purged.map(Into::into));
                    store.truncate_after(last).await.expect("truncates");
                }
                Change::Purge(count) if count > 0 => {
                    let through = first + count - 1;
                    let entry = store.read(through, through + 1, usize::MAX).expect("reads").pop();
                    let at = entry.map_or_else(|| at(term, through).into(), |entry| entry.log_id);
                    store.purge(at).await.expect("purges");
                }
                Change::Purge(_) => {
                    if let Some(purged) = known.purged {
                        store.purge(purged.into()).await.expect("purges");
                    }
                }
                Change::Restart => {
                    let entries = store.try_get_log_entries(0..u64::MAX).await.expect("reads");
                    store.close().await;
                    let known = Recovered { step: 0, links: Default::default(), ..known };
                    store = open();
                    assert_eq!(Recovered { step: 0, links: Default::default(), ..store.known() }, known);
                    assert_eq!(store.try_get_log_entries(0..u64::MAX).await.expect("reads"), entries);
                }
            }
        }
        store.close().await;
    }

    proptest! {
        #[test]
        fn the_chain_holds_whatever_is_cut_off_either_end(changes in proptest::collection::vec(change(), 1..20)) {
            tokio::runtime::Runtime::new().expect("a runtime").block_on(lives(changes));
        }
    }

    /// Blocks every write until released.
    #[derive(Debug)]
    struct Stalled {
        inner: MemoryEngine,
        released: Mutex<std::sync::mpsc::Receiver<()>>,
    }

    impl LogEngine for Stalled {
        fn write(&self, batch: Batch) -> io::Result<()> {
            // Once the sender is gone every write passes.
            let _ = self.released.lock().expect("lock").recv();
            self.inner.write(batch)
        }
        fn barrier(&self) -> io::Result<()> {
            self.inner.barrier()
        }
        fn read(&self, range: RangeInclusive<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>> {
            self.inner.read(range, bytes_max)
        }
        fn slot(&self, slot: Slot) -> io::Result<Option<Bytes>> {
            self.inner.slot(slot)
        }
        fn bounds(&self) -> io::Result<Option<(u64, u64)>> {
            self.inner.bounds()
        }
        fn disk_bytes(&self) -> io::Result<u64> {
            self.inner.disk_bytes()
        }
    }

    #[tokio::test]
    async fn what_the_disk_does_not_have_yet_is_readable_from_memory() {
        let (release, released) = std::sync::mpsc::channel();
        release.send(()).expect("the stamp passes");
        let engine = Arc::new(Stalled { inner: MemoryEngine::default(), released: Mutex::new(released) });
        let stamp = Stamp { cluster: "blue".into(), node: 1 };
        let mut store = LogStore::open(engine.clone(), None, &stamp, OnDiskError::Stop).expect("store opens");
        let length = 1024 * 1024;
        let count = 2 * TAIL_BYTES_MAX / length;
        for index in 0..count as u64 {
            store.append([command(1, index, length)], IOFlushed::noop()).await.expect("queues");
        }
        assert_eq!(engine.bounds().expect("bounds"), None, "the disk is stalled");
        assert_eq!(indexes(&mut store).await.len(), count);
        drop(release);
        store.close().await;
        assert_eq!(engine.bounds().expect("bounds"), Some((0, count as u64 - 1)));
    }

    #[tokio::test]
    async fn a_disk_that_hangs_does_not_hold_up_the_end() {
        let (release, released) = std::sync::mpsc::channel();
        release.send(()).expect("the stamp passes");
        let engine = Arc::new(Stalled { inner: MemoryEngine::default(), released: Mutex::new(released) });
        let stamp = Stamp { cluster: "blue".into(), node: 1 };
        let mut store = LogStore::open(engine, None, &stamp, OnDiskError::Stop).expect("store opens");
        store.append([command(1, 0, 1)], IOFlushed::noop()).await.expect("queues");
        let closed = tokio::time::timeout(10 * LOG_CLOSES_WITHIN, store.close()).await;
        // The end of this test's runtime waits for tasks that wait for the disk.
        drop(release);
        closed.expect("the disk is given up");
        assert!(store.blocking_append([command(1, 1, 1)]).await.is_err(), "closed all the same");
    }

    #[tokio::test]
    async fn a_closed_store_refuses_everything() {
        let dir = TempDir::new().expect("temporary directory");
        let mut store = open(&dir);
        store.blocking_append([command(1, 0, 1)]).await.expect("appends");
        store.close().await;
        assert!(store.try_get_log_entries(0..9).await.is_err());
        assert!(store.save_vote(&Ballot { term: 1, node: 1, committed: false }.into()).await.is_err());
        assert!(store.blocking_append([command(1, 1, 1)]).await.is_err());
    }
}
