//! Frames of requests and cancels, and the requests of a changed model, handled over several turns if necessary.

use symphony_protocol::dispatch::{EndReason, RequestHeader};
use symphony_scheduler::{ModelInput, Request};
use symphony_types::{BootId, FailReason, FrontendId, ModelId, Nanos, RequestId, RequestValue, Time};

use super::ModelWorker;
use crate::workers::counters::count;
use crate::workers::messages::Peer;

/// A frame in progress.
pub(super) enum FrameInProgress {
    Requests(RequestFrame),
    Cancels(CancelFrame),
    Returns(Returning),
}

/// A frame of requests.
pub(super) struct RequestFrame {
    pub(super) peer: Peer,
    pub(super) received: Time,
    pub(super) requests: std::vec::IntoIter<RequestHeader>,
    pub(super) redriven: bool,
}

/// A frame of requests whose clients have gone, with their models.
pub(super) struct CancelFrame {
    pub(super) frontend: FrontendId,
    pub(super) boot: BootId,
    pub(super) requests: std::vec::IntoIter<(u64, u32)>,
}

/// What waited in the former queue of a model, in the order of deadlines.
pub(super) struct Returning {
    pub(super) model: ModelId,
    pub(super) requests: std::vec::IntoIter<Request>,
}

impl ModelWorker {
    /// Handles up to `limit` requests or cancels of the frame in progress, and returns how many.
    pub(super) fn handle_frame(&mut self, now: Time, limit: usize) -> usize {
        match self.frame_in_progress.take() {
            Some(FrameInProgress::Requests(arriving)) => self.handle_requests(now, arriving, limit),
            Some(FrameInProgress::Cancels(leaving)) => self.handle_cancels(now, leaving, limit),
            Some(FrameInProgress::Returns(returning)) => self.handle_returns(now, returning, limit),
            None => 0,
        }
    }

    /// All of them make one candidate.
    fn handle_returns(&mut self, now: Time, mut returning: Returning, limit: usize) -> usize {
        let model = returning.model;
        let mut taken = 0;
        while taken < limit
            && let Some(request) = returning.requests.next()
        {
            let is_last = returning.requests.len() == 0;
            let input = if is_last { ModelInput::Return(request) } else { ModelInput::ReturnWithNext(request) };
            self.enqueue(now, model, input, request.id);
            taken += 1;
        }
        if returning.requests.len() > 0 {
            self.frame_in_progress = Some(FrameInProgress::Returns(returning));
        }
        taken
    }

    fn handle_requests(&mut self, now: Time, mut arriving: RequestFrame, limit: usize) -> usize {
        let RequestFrame { peer, received, redriven, .. } = arriving;
        let mut taken = 0;
        for header in arriving.requests.by_ref().take(limit) {
            self.arrive(now, peer, received, header, redriven);
            taken += 1;
        }
        count(&self.metrics.counters.requests, taken as u64);
        if arriving.requests.len() > 0 {
            self.frame_in_progress = Some(FrameInProgress::Requests(arriving));
        }
        taken
    }

    /// Each model's queue is walked once for all of its cancels, and makes one candidate.
    fn handle_cancels(&mut self, now: Time, mut leaving: CancelFrame, limit: usize) -> usize {
        let CancelFrame { frontend, boot, .. } = leaving;
        let mut gone: Vec<(u64, u32)> = leaving.requests.by_ref().take(limit).collect();
        if leaving.requests.len() > 0 {
            self.frame_in_progress = Some(FrameInProgress::Cancels(leaving));
        }
        gone.sort_unstable();
        self.drop_waiting(|id| {
            let at = gone.partition_point(|&(sequence, _)| sequence < id.sequence);
            (id.frontend, id.boot) == (frontend, boot) && gone.get(at).is_some_and(|&(found, _)| found == id.sequence)
        });
        gone.sort_by_key(|&(_, model)| model);
        for of_model in gone.chunk_by(|(_, one), (_, other)| one == other) {
            let Some(&slot) = self.by_id.get(&ModelId::new(of_model[0].1)) else { continue };
            for (index, &(sequence, _)) in of_model.iter().enumerate() {
                let id = RequestId { frontend, boot, sequence };
                let is_last = index + 1 == of_model.len();
                let input = if is_last { ModelInput::Cancel(id) } else { ModelInput::CancelWithNext(id) };
                self.step(now, slot, input);
            }
        }
        gone.len()
    }

    #[inline]
    fn arrive(&mut self, now: Time, peer: Peer, received: Time, header: RequestHeader, redriven: bool) {
        let Peer { frontend, boot, .. } = peer;
        let id = RequestId { frontend, boot, sequence: header.sequence };
        // None is what a frontend never sends.
        let weight = RequestValue::from_thousandths(header.weight).unwrap_or_default();
        let deadline = received + Nanos::new(header.budget);
        // Headers name none: families are not served yet (docs/adr/0045-prefix-batching.md).
        let request = Request { id, deadline, items: header.items, weight, variant: 0 };
        let model = ModelId::new(header.model);
        // A redriven frame also contains requests that were never announced, because there was no leader.
        if !redriven || header.attempt <= 1 {
            return self.enqueue(now, model, ModelInput::Arrive(request), id);
        }
        count(&self.metrics.counters.redriven_requests, 1);
        match &mut self.recovery {
            Some(recovery) => recovery.waiting.push((model, request)),
            None => self.redrive(now, model, request),
        }
    }

    #[inline]
    pub(super) fn enqueue(&mut self, now: Time, model: ModelId, input: ModelInput, id: RequestId) {
        match self.by_id.get(&model) {
            Some(&slot) => self.step(now, slot, input),
            None => self.end(id, EndReason::Failed(FailReason::ModelNotReady)),
        }
    }
}
