//! The latest decisions, in bounded memory.

use symphony_scheduler::Request;
use symphony_types::RequestId;

use crate::records::{BatchEnd, BatchRecord, DropRecord};
use crate::ring::Ring;

/// Capacity of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderLimits {
    /// Batches kept; the oldest are overwritten.
    pub batches: usize,
    /// Requests of batches; once these are overwritten, only the numbers of their batch remain.
    pub requests: usize,
    /// Dropped requests.
    pub drops: usize,
}

impl RecorderLimits {
    /// For a model worker: 2^18 requests of 40 bytes, 2^15 batches of about 170 bytes and 2^15 drops of about 150 bytes
    /// are 21 MB, touched as they fill. At 5000 requests per second that covers 50 seconds.
    pub const WORKER: Self = Self { batches: 1 << 15, requests: 1 << 18, drops: 1 << 15 };
}

#[derive(Clone, Copy, Debug)]
struct Batch {
    record: BatchRecord,
    /// Number of its first request.
    first: u64,
}

/// Records the latest decisions of a model worker, and their outcomes.
#[derive(Clone, Debug)]
pub struct FlightRecorder {
    batches: Ring<Batch>,
    requests: Ring<Request>,
    drops: Ring<DropRecord>,
}

/// A recorder's finding about a request or batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It was planned.
    Batch {
        /// The batch's number.
        number: u64,
        /// What was planned, and how it ended.
        record: BatchRecord,
        /// The request in question.
        request: Option<Request>,
        /// All its requests; empty if they are no longer recorded.
        requests: Vec<Request>,
    },
    /// It was dropped.
    Drop(DropRecord),
}

impl Finding {
    /// The time of that decision.
    #[must_use]
    pub const fn decided(&self) -> symphony_types::Time {
        match self {
            Self::Batch { record, .. } => record.decided,
            Self::Drop(record) => record.decided,
        }
    }
}

impl FlightRecorder {
    /// An empty recorder. All memory is reserved at once.
    #[must_use]
    pub fn new(limits: RecorderLimits) -> Self {
        Self {
            batches: Ring::new(limits.batches),
            requests: Ring::new(limits.requests),
            drops: Ring::new(limits.drops),
        }
    }

    /// Records a batch and its requests. Batches are numbered from 0.
    pub fn batch(&mut self, record: BatchRecord, requests: &[Request]) -> u64 {
        let first = self.requests.next();
        for &request in requests {
            self.requests.push(request);
        }
        self.batches.push(Batch { record, first })
    }

    /// Records the end of a batch; ignored if the batch is no longer recorded.
    pub fn ended(&mut self, number: u64, end: BatchEnd) {
        if let Some(batch) = self.batches.get_mut(number) {
            batch.record.end = end;
        }
    }

    /// Keeps why a request was given up; the oldest drop may be overwritten.
    pub fn dropped(&mut self, record: DropRecord) {
        self.drops.push(record);
    }

    /// The number of the next batch.
    #[must_use]
    pub const fn next_batch(&self) -> u64 {
        self.batches.next()
    }

    /// The record of a batch.
    #[must_use]
    pub fn batch_at(&self, number: u64) -> Option<Finding> {
        self.batches.get(number).map(|batch| self.found(number, batch, None))
    }

    /// All records of a request, oldest first. There are several if its plan was lost or refused and it waited again.
    #[must_use]
    pub fn find(&self, id: RequestId) -> Vec<Finding> {
        let planned = self.requests.newest_first().filter(|(_, request)| request.id == id);
        let mut found: Vec<_> = planned.filter_map(|(at, request)| self.batch_of(at, *request)).collect();
        let dropped = self.drops.newest_first().filter(|(_, record)| record.request.id == id);
        found.extend(dropped.map(|(_, record)| Finding::Drop(*record)));
        found.sort_by_key(Finding::decided);
        found
    }

    /// The latest batches of a model, oldest first.
    #[must_use]
    pub fn last(&self, model: u32, count: usize) -> Vec<Finding> {
        let of_model = self.batches.newest_first().filter(|(_, batch)| batch.record.model == model);
        let mut found: Vec<_> = of_model.take(count).map(|(number, batch)| self.found(number, batch, None)).collect();
        found.reverse();
        found
    }

    /// The batch of the request with this number.
    fn batch_of(&self, at: u64, request: Request) -> Option<Finding> {
        // The last batch whose first request is at or before it: batches and their requests are numbered in the same
        // order.
        let (mut low, mut high) = (self.batches.oldest(), self.batches.next());
        while low < high {
            let middle = u64::midpoint(low, high);
            if self.batches.get(middle).is_some_and(|batch| batch.first <= at) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let number = low.checked_sub(1)?;
        let batch = self.batches.get(number)?;
        Some(self.found(number, batch, Some(request)))
    }

    fn found(&self, number: u64, batch: &Batch, request: Option<Request>) -> Finding {
        let last = batch.first + u64::from(batch.record.plan.requests);
        let all: Option<Vec<_>> = (batch.first..last).map(|at| self.requests.get(at).copied()).collect();
        Finding::Batch { number, record: batch.record, request, requests: all.unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use symphony_scheduler::Plan;
    use symphony_types::{DropReason, GpuId, Nanos, Time};

    use super::*;

    const SMALL: RecorderLimits = RecorderLimits { batches: 4, requests: 6, drops: 2 };

    fn request(sequence: u64) -> Request {
        let id = RequestId { sequence, ..RequestId::default() };
        Request {
            id,
            deadline: Time::from_nanos(sequence * 100),
            items: 1,
            weight: symphony_types::RequestValue::ONE,
            variant: 0,
        }
    }

    fn record(model: u32, decided: u64, requests: u32) -> BatchRecord {
        let at = Time::from_nanos(decided);
        let plan = Plan {
            gpu: GpuId::new(0),
            start: at,
            end: at,
            batch: requests,
            must_end_by: at,
            first: 0,
            requests,
            why: None,
        };
        BatchRecord { model, decided: at, plan, end: BatchEnd::Running }
    }

    fn batch(recorder: &mut FlightRecorder, decided: u64, sequences: std::ops::Range<u64>) -> u64 {
        let requests: Vec<_> = sequences.map(request).collect();
        recorder.batch(record(decided as u32 % 2, decided, requests.len() as u32), &requests)
    }

    fn of(found: &[Finding]) -> Vec<(u64, usize)> {
        let batches = found.iter().map(|found| match found {
            Finding::Batch { number, requests, .. } => (*number, requests.len()),
            Finding::Drop(_) => panic!("{found:?}"),
        });
        batches.collect()
    }

    fn drop_of(sequence: u64) -> DropRecord {
        let decided = Time::from_nanos(sequence);
        DropRecord {
            model: 0,
            decided,
            request: request(sequence),
            reason: DropReason::QueueFull,
            cause: None,
            lost: false,
        }
    }

    #[test]
    fn a_request_is_found_in_its_batch_with_its_end() {
        let mut recorder = FlightRecorder::new(SMALL);
        assert_eq!(batch(&mut recorder, 10, 0..2), 0);
        assert_eq!(batch(&mut recorder, 11, 2..5), 1);
        let done = BatchEnd::Done { start: Time::from_nanos(12), at_latest: false, latency: Nanos::new(2) };
        recorder.ended(1, done);
        let found = recorder.find(request(3).id);
        let [Finding::Batch { number: 1, record, request: Some(queried), requests }] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((record.end, queried, requests.len()), (done, &request(3), 3));
        assert_eq!(of(&recorder.find(request(1).id)), [(0, 2)]);
        assert_eq!(recorder.find(request(5).id), []);
    }

    #[test]
    fn what_is_overwritten_is_forgotten_and_never_mixed_with_what_is_newer() {
        let mut recorder = FlightRecorder::new(SMALL);
        for at in 0..5 {
            batch(&mut recorder, at, 2 * at..2 * at + 2);
        }
        // Requests 4 to 9 and batches 1 to 4 are recorded; batch 1 has lost its requests.
        assert_eq!(recorder.find(request(3).id), []);
        assert_eq!(of(&recorder.find(request(4).id)), [(2, 2)]);
        assert_eq!(of(&recorder.last(1, 9)), [(1, 0), (3, 2)]);
        assert_eq!(of(&recorder.last(0, 1)), [(4, 2)]);
        assert_eq!(recorder.batch_at(0), None);
        // The end of a batch that is no longer recorded is ignored.
        recorder.ended(0, BatchEnd::Lost);
        assert!((1..5).all(|number| match recorder.batch_at(number) {
            Some(Finding::Batch { record, .. }) => record.end == BatchEnd::Running,
            _ => false,
        }));
        // Batches of one request each: now the batches are overwritten before the requests.
        for at in 5..11 {
            batch(&mut recorder, at, at + 5..at + 6);
        }
        assert_eq!(recorder.find(request(10).id), [], "its request is remembered, its batch is not");
        assert_eq!(of(&recorder.find(request(12).id)), [(7, 1)]);
    }

    #[test]
    fn a_request_that_waited_again_has_a_history() {
        let mut recorder = FlightRecorder::new(SMALL);
        let lost = batch(&mut recorder, 1, 0..1);
        recorder.ended(lost, BatchEnd::Lost);
        recorder.dropped(DropRecord { decided: Time::from_nanos(7), ..drop_of(0) });
        let found = recorder.find(request(0).id);
        assert!(matches!(found[..], [Finding::Batch { .. }, Finding::Drop(_)]), "{found:?}");
        for sequence in 1..3 {
            recorder.dropped(drop_of(sequence));
        }
        assert_eq!(recorder.find(request(0).id).len(), 1, "the drop is forgotten");
    }
}
