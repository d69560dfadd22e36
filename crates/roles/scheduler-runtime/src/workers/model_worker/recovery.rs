//! Requests that were announced again: waited for where a backend has them, queued again where none has.

use symphony_scheduler::{ModelInput, Request};
use symphony_types::{ModelId, Nanos, RequestId, Time};

use super::ModelWorker;
use crate::workers::counters::count;
use crate::workers::sent_plans::SentPlan;

/// How long re-driven requests wait for backends that have not answered the seal: after that a second execution, which
/// only wastes time, is better than a lost deadline (DESIGN section 8; consensus protocol, step 6).
pub const REDRIVE_WAIT: Nanos = Nanos::from_millis(20);

/// Requests announced again, until it is known which of them backends already have.
pub(super) struct Recovery {
    pub(super) until: Time,
    pub(super) held: Vec<(ModelId, Request)>,
}

impl ModelWorker {
    /// A request announced again: waited for where a backend has it, queued again where none has.
    pub(super) fn redrive(&mut self, now: Time, model: ModelId, request: Request) {
        let known_by = self.known.get(&request.id).copied();
        if known_by.is_none() && !self.sent.has(request.id) {
            return self.give_back(now, model, request);
        }
        count(&self.metrics.counters.redriven_known_requests, 1);
        if let Some(seal) = known_by {
            self.awaited.entry(seal).or_default().push((model, request));
        }
    }

    /// Queues a request that was an arrival before, when it came to this lead or the one before it. It was let in then,
    /// and is not shed now; and it did not come now, with all the others that come back: it says nothing about the
    /// load.
    pub(super) fn give_back(&mut self, now: Time, model: ModelId, request: Request) {
        self.wait(now, model, ModelInput::Return(request), request.id);
    }

    /// A plan will not run: its requests wait again, as long as their deadlines and their model allow.
    pub(super) fn requeue(&mut self, now: Time, plan: SentPlan) {
        for request in plan.requests {
            count(&self.metrics.counters.requeued_requests, 1);
            self.give_back(now, plan.model, request);
        }
    }

    /// Lets re-driven requests go: those that backends have are only waited for, the others are queued.
    pub(super) fn recover(&mut self, now: Time) {
        let Some(recovery) = self.recovery.take() else { return };
        for (model, request) in recovery.held {
            self.redrive(now, model, request);
        }
    }

    /// Lets go of requests that are kept outside the queues.
    pub(super) fn let_go(&mut self, leaves: impl Fn(RequestId) -> bool) {
        if let Some(recovery) = &mut self.recovery {
            recovery.held.retain(|(_, request)| !leaves(request.id));
        }
        for awaited in self.awaited.values_mut() {
            awaited.retain(|(_, request)| !leaves(request.id));
        }
    }
}
