//! Requests announced again after a take-over: queued, unless a backend already has them.

use symphony_scheduler::{ModelInput, Request};
use symphony_types::{ModelId, Nanos, RequestId, Time};

use super::ModelWorker;
use crate::workers::counters::count;
use crate::workers::sent_plans::SentPlan;

/// How long redriven requests wait for backends that have not answered the seal. After that a second execution, which
/// only wastes GPU time, is better than a missed deadline (docs/concepts/take-over.md).
pub(crate) const REDRIVE_WAIT: Nanos = Nanos::from_millis(20);

/// Requests announced again, until it is known which of them backends already have.
pub(super) struct Recovery {
    pub(super) until: Time,
    pub(super) waiting: Vec<(ModelId, Request)>,
}

impl ModelWorker {
    /// A request announced again: waited for if a backend has it, else queued.
    pub(super) fn redrive(&mut self, now: Time, model: ModelId, request: Request) {
        let known_by = self.known_by_backend.get(&request.id).copied();
        if known_by.is_none() && !self.sent.has(request.id) {
            return self.enqueue_returned(now, model, request);
        }
        count(&self.metrics.counters.redriven_known_requests, 1);
        if let Some(seal) = known_by {
            self.redriven_awaited.entry(seal).or_default().push((model, request));
        }
    }

    /// Queues a request that this lead or its predecessor admitted before. It is not shed now, and does not count as
    /// an arrival: the burst of returning requests says nothing about the load.
    pub(super) fn enqueue_returned(&mut self, now: Time, model: ModelId, request: Request) {
        self.enqueue(now, model, ModelInput::Return(request), request.id);
    }

    /// A plan will not run: its requests wait again, if their deadlines and their model allow.
    pub(super) fn requeue(&mut self, now: Time, plan: SentPlan) {
        for request in plan.requests {
            count(&self.metrics.counters.requeued_requests, 1);
            self.enqueue_returned(now, plan.model, request);
        }
    }

    /// Releases the waiting redriven requests: those that backends have are only waited for, the others are queued.
    pub(super) fn recover(&mut self, now: Time) {
        let Some(recovery) = self.recovery.take() else { return };
        for (model, request) in recovery.waiting {
            self.redrive(now, model, request);
        }
    }

    /// Drops requests that are kept outside the queues.
    pub(super) fn drop_waiting(&mut self, leaves: impl Fn(RequestId) -> bool) {
        if let Some(recovery) = &mut self.recovery {
            recovery.waiting.retain(|(_, request)| !leaves(request.id));
        }
        for awaited in self.redriven_awaited.values_mut() {
            awaited.retain(|(_, request)| !leaves(request.id));
        }
    }
}
