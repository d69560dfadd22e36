//! The one thread that writes to the log store.
//!
//! It takes all waiting jobs, writes them in order, issues one barrier for all, and only then completes the waiters,
//! in order: a group commit. No other thread writes, so votes and entries are serialised as Raft demands. Every batch
//! has a number, and the witness records it before any waiter is completed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;

use super::chain::Link;
use super::engine::{Batch, LogEngine, Slot};
use super::frame;
use super::pulse::Pulse;
use super::recovery::Recovered;
use super::witness::Witness;
use crate::fault::OnDiskError;
use crate::limits::{GROUP_COMMIT_BYTES_MAX, REMOVE_STEP_ENTRIES, WRITE_QUEUE_MAX};
use crate::record::{Ballot, Position, Record};

/// Called on the writer thread after the barrier, with the result.
pub(crate) type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Jobs of the writer, executed in the order of submission.
pub(crate) enum Job {
    Append {
        sequence: u64,
        records: Vec<Record>,
        done: Done,
    },
    Vote {
        ballot: Ballot,
        done: Done,
    },
    /// A hint; needs no barrier of its own.
    Committed(Position),
    /// Removes `first..next`, from the end backwards.
    Truncate {
        first: u64,
        next: u64,
    },
    /// Removes everything up to `through`; `first` is the lowest index that may exist.
    Purge {
        first: u64,
        through: Position,
    },
    /// Everything before is finished, then the thread ends.
    Close,
}

/// The end of a log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tip {
    /// Number of the last batch.
    step: u64,
    /// Index after the last entry.
    next: u64,
    /// Link of the last entry, or of what was purged if there is none.
    link: Link,
    /// Link of the entry that was purged last.
    base: Link,
}

impl From<&Recovered> for Tip {
    fn from(known: &Recovered) -> Self {
        let next = known.last.map_or(0, |at| at.index.saturating_add(1));
        Self { step: known.step, next, link: known.links.1, base: known.links.0 }
    }
}

/// The queue to the writer thread.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    jobs: mpsc::Sender<Job>,
    /// The last append that reads of the engine see.
    written: Arc<AtomicU64>,
    pulse: Arc<Pulse>,
}

impl Writer {
    /// Starts the thread; `tip` is the end of the engine's log.
    pub(crate) fn start(
        engine: Arc<dyn LogEngine>,
        witness: Option<Witness>,
        tip: Tip,
        fault: OnDiskError,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (writer, writing, queue) = Self::new(engine, witness, tip, fault);
        let thread = std::thread::Builder::new().name("raft-log-writer".into()).spawn(move || {
            let _guard = ReportPanic(fault);
            writing.run(queue);
        })?;
        Ok((writer, thread))
    }

    /// Starts a task of this runtime instead, for a simulated disk. `barrier_time` returns the duration of the next
    /// barrier.
    pub(crate) fn start_task(
        engine: Arc<dyn LogEngine>,
        tip: Tip,
        fault: OnDiskError,
        barrier_time: impl Fn() -> Duration + Send + 'static,
    ) -> Self {
        let (writer, writing, queue) = Self::new(engine, None, tip, fault);
        tokio::spawn(writing.run_in_task(queue, barrier_time));
        writer
    }

    fn new(
        engine: Arc<dyn LogEngine>,
        witness: Option<Witness>,
        tip: Tip,
        fault: OnDiskError,
    ) -> (Self, WriteLoop, mpsc::Receiver<Job>) {
        let (jobs, queue) = mpsc::channel(WRITE_QUEUE_MAX);
        let written = Arc::new(AtomicU64::new(0));
        let pulse = Arc::new(Pulse::new());
        let writing = WriteLoop {
            engine,
            witness,
            tip,
            fault,
            written: written.clone(),
            pulse: pulse.clone(),
            poisoned: None,
            pending: Batch::default(),
        };
        (Self { jobs, written, pulse }, writing, queue)
    }

    /// Queues a job; waits while the queue is full.
    pub(crate) async fn submit(&self, job: Job) -> io::Result<()> {
        self.jobs.send(job).await.map_err(|_| closed())
    }

    /// Sequence of the last append that reads of the engine see.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Whether and since when the thread has been waiting for its disk.
    pub(crate) fn pulse(&self) -> Arc<Pulse> {
        self.pulse.clone()
    }
}

/// The log was closed.
pub(crate) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "log store is closed")
}

/// Reports a panic of the engine like a returned error.
struct ReportPanic(OnDiskError);

impl Drop for ReportPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.report("log store", &"its engine panicked");
        }
    }
}

struct WriteLoop {
    engine: Arc<dyn LogEngine>,
    witness: Option<Witness>,
    tip: Tip,
    fault: OnDiskError,
    written: Arc<AtomicU64>,
    pulse: Arc<Pulse>,
    /// The first failure; everything after it fails with it.
    poisoned: Option<(io::ErrorKind, String)>,
    /// Changes taken from the queue and not yet passed to the engine.
    pending: Batch,
}

/// Written jobs that wait for their barrier.
struct Turn {
    waiting: Vec<Done>,
    /// Nothing comes after it.
    last: bool,
}

impl WriteLoop {
    fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        while let Some(first) = queue.blocking_recv() {
            let turn = self.begin(first, &mut queue);
            if !self.settle(turn) {
                return;
            }
        }
    }

    /// Writes to a simulated disk as [`run`](Self::run) does to a real one: time passes, and a crash may come, before
    /// the barrier.
    async fn run_in_task(mut self, mut queue: mpsc::Receiver<Job>, barrier_time: impl Fn() -> Duration) {
        while let Some(first) = queue.recv().await {
            let turn = self.begin(first, &mut queue);
            tokio::time::sleep(barrier_time()).await;
            if !self.settle(turn) {
                return;
            }
        }
    }

    /// Takes the waiting jobs and writes them.
    fn begin(&mut self, first: Job, queue: &mut mpsc::Receiver<Job>) -> Turn {
        let mut turn = Turn { waiting: Vec::new(), last: false };
        let mut next = Some(first);
        let mut appended = None;
        let mut bytes = 0;
        while let Some(job) = next {
            match job {
                Job::Append { sequence, records, done } => {
                    bytes += self.append(&records);
                    appended = Some(sequence);
                    turn.waiting.push(done);
                }
                Job::Vote { ballot, done } => {
                    self.pending.slots.push((Slot::Vote, frame::encode_ballot(ballot).into()));
                    turn.waiting.push(done);
                }
                Job::Committed(at) => {
                    self.pending.slots.push((Slot::Committed, frame::encode_position(at, Link::default()).into()));
                }
                Job::Truncate { first, next } => self.attempt(|this| this.truncate(first, next)),
                Job::Purge { first, through } => self.attempt(|this| this.purge(first, through)),
                Job::Close => {
                    turn.last = true;
                    break;
                }
            }
            next = if bytes < GROUP_COMMIT_BYTES_MAX { queue.try_recv().ok() } else { None };
        }
        self.attempt(Self::hand_over);
        if let Some(sequence) = appended
            && self.poisoned.is_none()
        {
            self.written.store(sequence, Ordering::Release);
        }
        turn
    }

    /// Makes the writes durable and completes the waiters. False at the end of the queue.
    fn settle(&mut self, turn: Turn) -> bool {
        if !turn.waiting.is_empty() || turn.last {
            self.attempt(Self::barrier);
        }
        for done in turn.waiting {
            done(self.verdict());
        }
        !turn.last
    }

    /// Runs a step unless an earlier one failed; the first failure poisons.
    fn attempt(&mut self, step: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.poisoned.is_none()
            && let Err(error) = step(self)
        {
            self.fault.report("log store", &error);
            self.poisoned = Some((error.kind(), error.to_string()));
        }
    }

    fn verdict(&self) -> io::Result<()> {
        match &self.poisoned {
            None => Ok(()),
            Some((kind, text)) => Err(io::Error::new(*kind, format!("log store failed before: {text}"))),
        }
    }

    fn append(&mut self, records: &[Record]) -> usize {
        let Some(last) = records.last() else { return 0 };
        let next = last.at.index.saturating_add(1);
        let before = self.pending.entries.len();
        for record in records {
            let (frame, link) = frame::encode_record(record, self.tip.link);
            self.tip.link = link;
            self.pending.entries.push((record.at.index, frame.into()));
        }
        self.tip.next = next;
        // In the same atomic batch as the entries: anything beyond this mark was never acknowledged.
        let last = Some((last.at, self.tip.link));
        self.pending.slots.push((Slot::Next, frame::encode_next(next, last).into()));
        self.pending.entries[before..].iter().map(|(_, bytes)| bytes.len()).sum()
    }

    fn hand_over(&mut self) -> io::Result<()> {
        if self.pending.entries.is_empty() && self.pending.slots.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.pending);
        self.write(batch)
    }

    /// All batches are written here: each gets its number in the same atomic step.
    fn write(&mut self, mut batch: Batch) -> io::Result<()> {
        self.tip.step += 1;
        batch.slots.push((Slot::Step, frame::encode_step(self.tip.step).into()));
        self.pulse.during(|| self.engine.write(batch))
    }

    fn barrier(&mut self) -> io::Result<()> {
        let (engine, step) = (&self.engine, self.tip.step);
        let witness = self.witness.as_mut();
        self.pulse.during(|| {
            engine.barrier()?;
            witness.map_or(Ok(()), |witness| witness.note(step))
        })
    }

    /// The link of an entry that the engine holds.
    fn link_of(&self, index: u64) -> io::Result<Option<Link>> {
        let found = self.engine.read(index..=index, usize::MAX)?;
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, format!("entry {index}: {error}"));
        found.first().map(|(_, bytes)| Ok(frame::decode_record(bytes).map_err(invalid)?.1)).transpose()
    }

    fn truncate(&mut self, first: u64, next: u64) -> io::Result<()> {
        self.hand_over()?;
        // The next append follows the entry before, or the purged position.
        let before = first.checked_sub(1).map(|before| self.link_of(before)).transpose()?.flatten();
        (self.tip.next, self.tip.link) = (first, before.unwrap_or(self.tip.base));
        let mut next = next;
        while next > first {
            let step = next.saturating_sub(REMOVE_STEP_ENTRIES).max(first);
            let slots = vec![(Slot::Next, frame::encode_next(step, None).into())];
            self.write(Batch { remove: Some(step..=next - 1), slots, ..Batch::default() })?;
            next = step;
        }
        Ok(())
    }

    fn purge(&mut self, first: u64, through: Position) -> io::Result<()> {
        self.hand_over()?;
        if through.index < first {
            return Ok(());
        }
        // Nothing is stored behind the tip, and a snapshot may be far beyond it: that of a restored group is.
        let stored = self.tip.next.min(through.index.saturating_add(1));
        if through.index < self.tip.next {
            let missing = || io::Error::new(io::ErrorKind::InvalidData, format!("entry {} is missing", through.index));
            self.tip.base = self.link_of(through.index)?.ok_or_else(missing)?;
        } else {
            // Beyond the last entry, after a snapshot, a new chain starts.
            let next = through.index.saturating_add(1);
            self.tip = Tip { next, link: Link::default(), base: Link::default(), ..self.tip };
        }
        // The mark first: a crash in between leaves entries that recovery removes, never a hole.
        self.pending.slots.push((Slot::Purged, frame::encode_position(through, self.tip.base).into()));
        self.hand_over()?;
        let mut first = first;
        while first < stored {
            let next = first.saturating_add(REMOVE_STEP_ENTRIES).min(stored);
            self.write(Batch { remove: Some(first..=next - 1), ..Batch::default() })?;
            first = next;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;
    use std::sync::Mutex;

    use bytes::Bytes;

    use super::*;
    use crate::log::memory::MemoryEngine;
    use crate::record::Body;

    /// Records its calls, and fails its barrier on request.
    #[derive(Debug, Default)]
    struct Witness {
        inner: MemoryEngine,
        notes: Arc<Mutex<Vec<String>>>,
        fails: std::sync::atomic::AtomicBool,
    }

    impl LogEngine for Witness {
        fn write(&self, batch: Batch) -> io::Result<()> {
            self.notes.lock().expect("notes").push("write".into());
            self.inner.write(batch)
        }
        fn barrier(&self) -> io::Result<()> {
            self.notes.lock().expect("notes").push("barrier".into());
            if self.fails.load(Ordering::SeqCst) { Err(io::Error::other("device gone")) } else { Ok(()) }
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

    fn append(index: u64, notes: &Arc<Mutex<Vec<String>>>) -> Job {
        let notes = notes.clone();
        let records = vec![Record { at: Position { term: 1, node: 1, index }, body: Body::Blank }];
        let done: Done = Box::new(move |result| {
            let verdict = if result.is_ok() { "done" } else { "failed" };
            notes.lock().expect("notes").push(format!("{verdict} {index}"));
        });
        Job::Append { sequence: index, records, done }
    }

    #[test]
    fn waiters_are_completed_in_order_and_only_after_the_barrier() {
        let engine = Arc::new(Witness::default());
        let notes = engine.notes.clone();
        let (writer, thread) = Writer::start(engine, None, Tip::default(), OnDiskError::Stop).expect("start");
        for index in 0..20 {
            writer.jobs.blocking_send(append(index, &notes)).expect("send");
        }
        writer.jobs.blocking_send(Job::Close).expect("send");
        thread.join().expect("writer ends");

        let notes = notes.lock().expect("notes");
        let done: Vec<_> = notes.iter().filter(|note| note.starts_with("done")).cloned().collect();
        assert_eq!(done, (0..20).map(|index| format!("done {index}")).collect::<Vec<_>>());
        // Between a write and the completion it belongs to there is always a barrier.
        let mut durable = true;
        for note in notes.iter() {
            match note.as_str() {
                "write" => durable = false,
                "barrier" => durable = true,
                _ => assert!(durable, "completed before the barrier: {notes:?}"),
            }
        }
    }

    #[test]
    fn a_purge_far_beyond_the_last_entry_removes_what_is_there_and_goes_on_behind_it() {
        let engine = Arc::new(Witness::default());
        let notes = engine.notes.clone();
        let (writer, thread) = Writer::start(engine.clone(), None, Tip::default(), OnDiskError::Stop).expect("start");
        let through = Position { term: 9, node: 1, index: 1 << 50 };
        let jobs = [append(0, &notes), append(1, &notes), Job::Purge { first: 0, through }];
        for job in jobs.into_iter().chain([append(through.index + 1, &notes), Job::Close]) {
            writer.jobs.blocking_send(job).expect("send");
        }
        thread.join().expect("writer ends");
        assert_eq!(engine.bounds().expect("bounds"), Some((through.index + 1, through.index + 1)));
    }

    #[test]
    fn a_failed_barrier_poisons_everything_after_it() {
        let engine = Arc::new(Witness::default());
        let notes = engine.notes.clone();
        engine.fails.store(true, Ordering::SeqCst);
        let (writer, thread) = Writer::start(engine.clone(), None, Tip::default(), OnDiskError::Stop).expect("start");
        writer.jobs.blocking_send(append(0, &notes)).expect("send");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while notes.lock().expect("notes").last().is_none_or(|note| !note.ends_with('0')) {
            assert!(std::time::Instant::now() < deadline, "the waiter was never told");
            std::thread::yield_now();
        }
        assert!(notes.lock().expect("notes").contains(&"failed 0".to_owned()));
        // The device comes back; the store does not.
        engine.fails.store(false, Ordering::SeqCst);
        writer.jobs.blocking_send(append(1, &notes)).expect("send");
        writer.jobs.blocking_send(Job::Close).expect("send");
        thread.join().expect("writer ends");
        assert!(notes.lock().expect("notes").contains(&"failed 1".to_owned()));
    }
}
