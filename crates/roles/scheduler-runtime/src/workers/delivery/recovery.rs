//! Requests announced again after a take-over: they wait for a batch, unless a backend already has them.

use symphony_scheduler::Request;
use symphony_types::{ModelId, Nanos, RequestId, Time};

use super::{Delivery, EnqueueKind, Host};
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

impl Delivery {
    /// The redriven requests that wait for backends. None waits from here on.
    pub(super) fn release_redriven(&mut self) -> Vec<(ModelId, Request)> {
        self.recovery.take().map(|recovery| recovery.waiting).unwrap_or_default()
    }

    /// Drops requests that are kept outside the decisions.
    pub(super) fn drop_waiting(&mut self, leaves: impl Fn(RequestId) -> bool) {
        if let Some(recovery) = &mut self.recovery {
            recovery.waiting.retain(|(_, request)| !leaves(request.id));
        }
        for awaited in self.redriven_awaited.values_mut() {
            awaited.retain(|(_, request)| !leaves(request.id));
        }
    }
}

/// A request announced again: waited for if a backend has it, else it comes back. That this lead or its predecessor
/// admitted it before means that it is not shed now, and does not count as an arrival: the burst of returning requests
/// is no measure of the load.
pub(super) fn redrive(host: &mut impl Host, now: Time, model: ModelId, request: Request) {
    let delivery = host.delivery();
    let known_by = delivery.known_by_backend.get(&request.id).copied();
    if known_by.is_none() && !delivery.sent.has(request.id) {
        return host.enqueue(now, model, request, EnqueueKind::Returned);
    }
    count(&delivery.metrics.counters.redriven_known_requests, 1);
    if let Some(seal) = known_by {
        delivery.redriven_awaited.entry(seal).or_default().push((model, request));
    }
}

/// A request that will not run where it was sent waits again.
pub(super) fn requeue_request(host: &mut impl Host, now: Time, model: ModelId, request: Request) {
    count(&host.delivery().metrics.counters.requeued_requests, 1);
    host.enqueue(now, model, request, EnqueueKind::Returned);
}

/// A plan will not run: its requests wait again, if their deadlines and their model allow.
pub(super) fn requeue(host: &mut impl Host, now: Time, plan: SentPlan) {
    for &request in &plan.requests {
        requeue_request(host, now, plan.model_of(&request), request);
    }
}
