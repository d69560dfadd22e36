//! The recorder of one worker: appends decisions to a chunk, and never waits.

use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::TrySendError;
use symphony_scheduler::{
    ClusterActions, ClusterFacts, ClusterInput, DataDelay, ModelActions, ModelInput, ModelQueueConfig, PoolInput,
    PoolSignal, RankAction, RankInput,
};
use symphony_tape::{Chunk, TapeEnd};
use symphony_types::{FamilyProfile, GpuClass, LatencyProfile, ModelId, Nanos, Time};

use crate::records::tape_writer::{CHUNK_BYTES, WriterEnd};
use crate::workers::counters::count;
use crate::workers::worker_metrics::WorkerMetrics;

/// A chunk is sent to the writer with the first decision after this time, to bound the loss if the process is killed.
const CHUNK_SENT_WITHIN: Nanos = Nanos::from_millis(100);
/// How long the end of a lead waits for a stalled disk; no decisions wait then.
const LAST_CHUNK_WITHIN: Duration = Duration::from_secs(1);
/// Room for the record that fills a chunk; a larger record makes the chunk grow.
const LAST_RECORD_BYTES: usize = 16 << 10;
/// The objects of a rank worker's tape.
const RANKER: u32 = 0;
const POOL: u32 = 1;
/// The object of the tape of a worker that hosts a policy for the whole sub-cluster.
const CLUSTER: u32 = 0;
/// Chunks allocated in advance, so that few are allocated while decisions run.
const CHUNKS_AHEAD: usize = 4;

/// Records if switched on; else each call costs one comparison.
#[derive(Debug, Default)]
pub(crate) struct TapeRecorder(Option<Box<Recording>>);

#[derive(Debug)]
struct Recording {
    writer: WriterEnd,
    chunk: Chunk,
    spare: Vec<Chunk>,
    bytes_max: u64,
    sent_at: Time,
    metrics: Arc<WorkerMetrics>,
}

impl TapeRecorder {
    pub(crate) fn new(writer: WriterEnd, bytes_max: u64, metrics: Arc<WorkerMetrics>) -> Self {
        let (chunk, spare) = (new_chunk(), (0..CHUNKS_AHEAD).map(|_| new_chunk()).collect());
        Self(Some(Box::new(Recording { writer, chunk, spare, bytes_max, sent_at: Time::ZERO, metrics })))
    }

    /// A queue is created.
    pub(crate) fn model(
        &mut self,
        object: usize,
        (model, name): (ModelId, &str),
        ordinal: u32,
        config: &ModelQueueConfig,
    ) {
        self.append(None, |chunk| chunk.model(object as u32, model, name, ordinal, config));
    }

    /// A queue of models that share a trunk is created.
    pub(crate) fn family(
        &mut self,
        object: usize,
        models: &[(ModelId, &str)],
        ordinal: u32,
        config: &ModelQueueConfig,
        profiles: &[(GpuClass, FamilyProfile)],
    ) {
        self.append(None, |chunk| chunk.family(object as u32, models, ordinal, config, profiles));
    }

    /// A queue gets a profile.
    pub(crate) fn profile(&mut self, object: usize, class: GpuClass, profile: &LatencyProfile) {
        self.append(None, |chunk| chunk.profile(object as u32, class, profile));
    }

    /// A queue gets its input delay.
    pub(crate) fn data_delay(&mut self, object: usize, data: &DataDelay) {
        self.append(None, |chunk| chunk.data_delay(object as u32, data));
    }

    /// A queue is removed.
    pub(crate) fn gone(&mut self, object: usize) {
        self.append(None, |chunk| chunk.gone(object as u32));
    }

    /// A queue decided.
    #[inline]
    pub(crate) fn model_step(&mut self, object: usize, now: Time, input: &ModelInput, actions: &ModelActions) {
        if self.0.is_some() {
            self.append(Some(now), |chunk| chunk.model_step(object as u32, now, input, actions));
        }
    }

    /// The ranker is created; its tape also carries the pool control.
    pub(crate) fn ranker(&mut self, models: u32, gpus: u32) {
        self.append(None, |chunk| chunk.ranker(RANKER, models, gpus));
    }

    /// The ranker decided.
    #[inline]
    pub(crate) fn rank_step(&mut self, now: Time, input: &RankInput, actions: &[RankAction]) {
        if self.0.is_some() {
            self.append(Some(now), |chunk| chunk.rank_step(RANKER, now, input, actions));
        }
    }

    /// The pool control is created.
    pub(crate) fn pool(&mut self) {
        self.append(None, |chunk| chunk.pool(POOL));
    }

    /// The pool control decided.
    pub(crate) fn pool_step(&mut self, now: Time, input: &PoolInput, signal: Option<PoolSignal>) {
        self.append(Some(now), |chunk| chunk.pool_step(POOL, now, input, signal));
    }

    /// A policy for the whole sub-cluster is created.
    pub(crate) fn cluster(&mut self, policy: &str, facts: &ClusterFacts) {
        self.append(None, |chunk| chunk.cluster(CLUSTER, policy, facts));
    }

    /// The policy is about to get a model.
    pub(crate) fn cluster_model(&mut self, slot: u32, (model, name): (ModelId, &str)) {
        self.append(None, |chunk| chunk.cluster_model(CLUSTER, slot, model, name));
    }

    /// Whether anything is recorded: then a host keeps an input for [`cluster_step`](Self::cluster_step).
    pub(crate) const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The policy for the whole sub-cluster decided.
    pub(crate) fn cluster_step(&mut self, now: Time, input: &ClusterInput, orders: &ClusterActions) {
        self.append(Some(now), |chunk| chunk.cluster_step(CLUSTER, now, input, orders));
    }

    /// Appends a record. The tape ends if the record does not fit or the chunk cannot be sent.
    #[cold]
    fn append(&mut self, now: Option<Time>, put: impl FnOnce(&mut Chunk)) {
        let Some(recording) = &mut self.0 else { return };
        if let Err(end) = recording.append(now, put) {
            let _ = recording.writer.end.set(end);
            count(&recording.metrics.counters.tapes_cut, 1);
            self.0 = None;
        }
    }
}

impl Recording {
    fn append(&mut self, now: Option<Time>, put: impl FnOnce(&mut Chunk)) -> Result<(), TapeEnd> {
        let before = self.chunk.len();
        put(&mut self.chunk);
        if self.writer.written + self.chunk.len() as u64 > self.bytes_max {
            self.chunk.truncate(before);
            return Err(TapeEnd::Full);
        }
        let now = now.unwrap_or(self.sent_at);
        if self.chunk.len() >= CHUNK_BYTES || now.since(self.sent_at) >= CHUNK_SENT_WITHIN {
            self.sent_at = now;
            self.send_chunk()?;
        }
        Ok(())
    }

    fn send_chunk(&mut self) -> Result<(), TapeEnd> {
        let empty = self.writer.empty.try_recv().ok().or_else(|| self.spare.pop()).unwrap_or_else(new_chunk);
        let chunk = std::mem::replace(&mut self.chunk, empty);
        self.writer.written += chunk.len() as u64;
        match self.writer.full.try_send(chunk) {
            Ok(()) => Ok(()),
            // The writer has stopped, and has logged the reason.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(TapeEnd::Overflow),
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // After an overflow the tape has a gap; a record after the gap could not be replayed.
        if !self.chunk.is_empty() && self.writer.end.get() != Some(&TapeEnd::Overflow) {
            let last = std::mem::replace(&mut self.chunk, Chunk::with_capacity(0));
            if self.writer.full.send_timeout(last, LAST_CHUNK_WITHIN).is_err() {
                let _ = self.writer.end.set(TapeEnd::Overflow);
            }
        }
    }
}

fn new_chunk() -> Chunk {
    Chunk::with_capacity(CHUNK_BYTES + LAST_RECORD_BYTES)
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::Ordering;

    use crossbeam::channel::{Receiver, bounded};

    use super::*;
    use crate::workers::worker_metrics::WorkerKind;

    /// A recorder whose writer is the test, with room for two chunks.
    fn recorder() -> (TapeRecorder, Receiver<Chunk>, Arc<OnceLock<TapeEnd>>, Arc<WorkerMetrics>) {
        let ((full, chunks), (_, empty)) = (bounded(2), bounded(2));
        let (end, metrics) = (Arc::new(OnceLock::new()), Arc::new(WorkerMetrics::new(WorkerKind::Rank)));
        let writer = WriterEnd { full, empty, end: Arc::clone(&end), written: 0 };
        (TapeRecorder::new(writer, 1 << 20, Arc::clone(&metrics)), chunks, end, metrics)
    }

    fn decide(tape: &mut TapeRecorder, after: u64) {
        tape.rank_step(Time::ZERO + CHUNK_SENT_WITHIN.saturating_mul(after), &RankInput::Wake, &[]);
    }

    #[test]
    fn a_disk_that_stands_still_ends_the_tape_and_stops_no_decision() {
        let (mut tape, chunks, end, metrics) = recorder();
        for after in 1..=2 {
            decide(&mut tape, after);
        }
        assert_eq!((chunks.len(), end.get(), tape.0.is_some()), (2, None, true));
        for after in 3..=9 {
            decide(&mut tape, after);
        }
        assert_eq!((end.get(), tape.0.is_none()), (Some(&TapeEnd::Overflow), true));
        assert_eq!(metrics.counters.tapes_cut.load(Ordering::Relaxed), 1);
        // The chunks sent earlier stay, and nothing follows the gap.
        assert_eq!(chunks.iter().count(), 2);
    }

    #[test]
    fn the_end_of_a_lead_sends_what_is_left_and_is_no_cut() {
        let (mut tape, chunks, end, metrics) = recorder();
        decide(&mut tape, 0);
        assert!(chunks.is_empty(), "a chunk is sent when it is full or old");
        drop(tape);
        assert_eq!((chunks.iter().count(), end.get()), (1, None));
        assert_eq!(metrics.counters.tapes_cut.load(Ordering::Relaxed), 0);
    }
}
