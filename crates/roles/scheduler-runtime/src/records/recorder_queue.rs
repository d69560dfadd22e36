//! A model worker's notes for explanations: collected while it decides, and moved to its recorder after everything is
//! sent.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use symphony_explain::{BatchEnd, BatchRecord, DropRecord, FlightRecorder};
use symphony_scheduler::Request;

/// The most notes of one kind that wait for the recorder. Reading a whole recorder takes about a millisecond, in which
/// a model worker decides fewer than 4096 batches or drops; further notes are counted instead.
const NOTES_MAX: usize = 4096;

/// A recorder with one writing worker and other readers.
pub(crate) type SharedRecorder = Arc<Mutex<FlightRecorder>>;

/// A worker's end of its recorder. The worker never waits for a reader: notes stay until the recorder is free.
#[derive(Debug, Default)]
pub(crate) struct RecorderQueue {
    /// None if nothing is recorded.
    recorder: Option<SharedRecorder>,
    batches: Vec<BatchRecord>,
    /// The requests of all `batches`, concatenated.
    requests: Vec<Request>,
    ends: Vec<(u64, BatchEnd)>,
    drops: Vec<DropRecord>,
    /// The number of the next batch in the recorder.
    next: u64,
}

impl RecorderQueue {
    pub(crate) fn new(recorder: Option<SharedRecorder>) -> Self {
        Self { recorder, ..Self::default() }
    }

    /// Notes a batch. Returns its number; none if it is not recorded.
    pub(crate) fn batch(&mut self, record: BatchRecord, requests: &[Request]) -> Option<u64> {
        if self.recorder.is_none() || self.batches.len() >= NOTES_MAX {
            return None;
        }
        self.batches.push(record);
        self.requests.extend_from_slice(requests);
        self.next += 1;
        Some(self.next - 1)
    }

    /// Notes how a batch ended. False if there is no room.
    pub(crate) fn ended(&mut self, number: Option<u64>, end: BatchEnd) -> bool {
        let Some(number) = number else { return true };
        let fits = self.ends.len() < NOTES_MAX;
        if fits {
            self.ends.push((number, end));
        }
        fits
    }

    /// Notes a drop. False if there is no room.
    pub(crate) fn dropped(&mut self, record: DropRecord) -> bool {
        if self.recorder.is_none() {
            return true;
        }
        let fits = self.drops.len() < NOTES_MAX;
        if fits {
            self.drops.push(record);
        }
        fits
    }

    /// Whether anything is recorded at all.
    pub(crate) const fn is_on(&self) -> bool {
        self.recorder.is_some()
    }

    /// Moves the notes to the recorder, unless a reader holds it.
    pub(crate) fn flush(&mut self) {
        if self.batches.is_empty() && self.ends.is_empty() && self.drops.is_empty() {
            return;
        }
        let Some(recorder) = &self.recorder else { return };
        let mut recorder = match recorder.try_lock() {
            Ok(recorder) => recorder,
            Err(TryLockError::WouldBlock) => return,
            // A reader that panicked has changed nothing.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        let mut requests = self.requests.as_slice();
        for record in self.batches.drain(..) {
            let (own, rest) = requests.split_at(record.plan.requests as usize);
            recorder.batch(record, own);
            requests = rest;
        }
        self.requests.clear();
        for (number, end) in self.ends.drain(..) {
            recorder.ended(number, end);
        }
        for record in self.drops.drain(..) {
            recorder.dropped(record);
        }
    }
}

/// Reads a recorder while its worker continues.
pub(crate) fn read<T>(recorder: &SharedRecorder, read: impl FnOnce(&FlightRecorder) -> T) -> T {
    read(&recorder.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use symphony_explain::{Finding, RecorderLimits};
    use symphony_scheduler::Plan;
    use symphony_types::{GpuId, Nanos, RequestId, Time};

    use super::*;

    fn request(sequence: u64) -> Request {
        Request {
            id: RequestId { sequence, ..RequestId::default() },
            deadline: Time::ZERO,
            items: 1,
            weight: symphony_types::RequestValue::ONE,
            variant: 0,
        }
    }

    fn record(requests: u32) -> BatchRecord {
        let (gpu, at) = (GpuId::new(0), Time::ZERO);
        let plan = Plan { gpu, start: at, end: at, batch: requests, must_end_by: at, first: 0, requests, why: None };
        BatchRecord { model: 1, decided: at, plan, end: BatchEnd::Running }
    }

    #[test]
    fn a_reader_delays_the_notes_and_loses_none() {
        let recorder = Arc::new(Mutex::new(FlightRecorder::new(RecorderLimits::WORKER)));
        let mut log = RecorderQueue::new(Some(Arc::clone(&recorder)));
        assert_eq!(log.batch(record(2), &[request(0), request(1)]), Some(0));
        {
            let reader = recorder.lock().unwrap();
            log.flush();
            assert_eq!(reader.next_batch(), 0, "the worker did not wait");
            assert_eq!(log.batch(record(1), &[request(2)]), Some(1));
            assert!(log.ended(Some(0), BatchEnd::Done { start: Time::ZERO, at_latest: false, latency: Nanos::new(3) }));
        }
        log.flush();
        let found = read(&recorder, |recorder| recorder.find(request(1).id));
        assert!(matches!(&found[..], [Finding::Batch { number: 0, record, requests, .. }]
            if matches!(record.end, BatchEnd::Done { .. }) && requests.len() == 2));
        assert_eq!(read(&recorder, |recorder| recorder.find(request(2).id).len()), 1);
    }

    #[test]
    fn what_has_no_place_is_left_out_and_numbers_stay_right() {
        let recorder = Arc::new(Mutex::new(FlightRecorder::new(RecorderLimits::WORKER)));
        let mut log = RecorderQueue::new(Some(Arc::clone(&recorder)));
        for sequence in 0..NOTES_MAX as u64 {
            assert_eq!(log.batch(record(1), &[request(sequence)]), Some(sequence));
        }
        assert_eq!(log.batch(record(1), &[request(9_999)]), None);
        assert!(log.ended(None, BatchEnd::Lost), "the end of what is not recorded needs no place");
        log.flush();
        assert_eq!(log.batch(record(1), &[request(10_000)]), Some(NOTES_MAX as u64));
        log.flush();
        let found = read(&recorder, |recorder| recorder.find(request(10_000).id));
        assert!(matches!(found[..], [Finding::Batch { number, .. }] if number == NOTES_MAX as u64), "{found:?}");
    }

    #[test]
    fn without_a_recorder_nothing_is_kept() {
        let mut log = RecorderQueue::new(None);
        assert_eq!(log.batch(record(1), &[request(0)]), None);
        log.flush();
        assert!(!log.is_on() && log.batches.is_empty() && log.requests.is_empty());
    }
}
