//! Plans: from the decision to the backend, and to their ends.

use symphony_controllers::Run;
use symphony_explain::{BatchEnd, BatchRecord};
use symphony_protocol::execute::{Execute, PlannedRequest, ToBackend};
use symphony_scheduler::{Plan, Request};
use symphony_types::{FailReason, GpuClass, Invariant, ModelId, Nanos, RequestId, Time};

use super::Delivery;
use crate::workers::counters::count;
use crate::workers::load::{ModelCounts, window_used};
use crate::workers::messages::PlanId;
use crate::workers::sent_plans::{Ran, SentPlan};

/// A plan as it was decided.
#[derive(Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub(crate) model: ModelId,
    /// Its number.
    pub(crate) id: PlanId,
    /// The class of GPU that it was made for.
    pub(crate) class: GpuClass,
    pub(crate) plan: &'a Plan,
    pub(crate) requests: &'a [Request],
}

impl Delivery {
    /// Queues a plan for its backend. False if the GPU has no route; the requests stay where they were.
    pub(crate) fn queue_plan(&mut self, now: Time, placed: Placed<'_>, counts: &ModelCounts) -> bool {
        let Placed { model, id: place, class, plan, requests } = placed;
        // A plan for a GPU that was lost and sealed again has no number in the new sequence of plans.
        let route = self.routes.get(place.gpu as usize).and_then(Option::as_ref);
        let Some(route) = route.filter(|route| route.seal == place.seal && !route.sender.is_closed()) else {
            return false;
        };
        if route.class != class {
            let latency = plan.end.since(plan.start);
            count(&self.metrics.counters.violations, 1);
            symphony_telemetry::violated(
                Invariant::S2,
                format_args!("{} is of {}, its plan of {latency} was made for {class}", route.gpu, route.class),
            );
        }
        // Rows of the plan's own model have zeros there, as always.
        let row = |request: &Request| {
            let other = ModelId::new(request.variant);
            let model = if other == model { ModelId::default() } else { other };
            PlannedRequest { id: request.id, items: request.items, model }
        };
        let order = Execute {
            gpu: route.gpu,
            token: route.token,
            backend_boot: route.backend_boot,
            sequence: place.sequence,
            // Set when the plan is sent.
            start_in: 0,
            latency: plan.end.since(plan.start).get(),
            model,
            requests: requests.iter().map(row).collect(),
        };
        // Decisions know the GPU by its ordinal only.
        let plan = Plan { gpu: route.gpu, ..*plan };
        let record = BatchRecord { model: model.get(), decided: now, plan, end: BatchEnd::Running };
        self.outgoing.push((place, plan.start, order));
        let counters = &self.metrics.counters;
        count(&counters.plans, 1);
        count(&counters.planned_requests, requests.len() as u64);
        count(&counters.predicted_nanoseconds, plan.end.since(plan.start).get());
        counts.batch_items.record(u64::from(plan.batch));
        if let Some(why) = &plan.why {
            counts.window_used.record(window_used(plan.start, why.frontrun, why.latest));
        }
        let record = self.log.batch(record, requests);
        if record.is_none() && self.log.is_on() {
            count(&counters.unrecorded, 1);
        }
        self.sent.insert(now, place, model, &plan, requests, record);
        true
    }

    pub(crate) fn send_plans(&mut self, now: Time) {
        for (place, start, order) in self.outgoing.drain(..) {
            let route = self.routes.get(place.gpu as usize).and_then(Option::as_ref);
            // The plans of a GPU that was lost later in this turn have been given back already.
            let Some(route) = route.filter(|route| route.seal == place.seal) else { continue };
            let order = Execute { start_in: start.since(now).get(), ..order };
            if let Err(error) = route.sender.send(ToBackend::Execute(order)) {
                // Without the link the GPU is lost, and the plan's requests wait again. A link that rejects one plan
                // is unusable: the next plan would be out of sequence.
                tracing::warn!(backend = %route.backend, gpu = %route.gpu, %error, "plan not sent; the link ends");
                route.sender.close();
            }
        }
    }

    /// A plan has ended: it is recorded, reported to the learner, and counted for its model. Returns what to take for
    /// its latency: that of a batch that did not run as planned is no measure of the plan. `counts` are those of a
    /// request's model.
    pub(crate) fn batch_done<'a>(
        &mut self,
        now: Time,
        gpu: u32,
        sent: &SentPlan,
        (start_late, latency): (Nanos, Nanos),
        failed: &[(RequestId, FailReason)],
        counts: impl Fn(&Request) -> Option<&'a ModelCounts>,
    ) -> Nanos {
        let ran = sent.ran(failed);
        let (start, at_latest) = (sent.began(now, start_late, latency), start_late == Nanos::ZERO);
        self.record_end(sent, BatchEnd::Done { start, at_latest, latency });
        self.report_run(gpu, sent, ran, latency);
        for request in &sent.requests {
            let Some(counts) = counts(request) else { continue };
            count(&counts.executed, 1);
            count(&counts.late, u64::from(now > request.deadline));
            let has_failed = failed.iter().any(|(id, _)| *id == request.id);
            count(&counts.failed, u64::from(has_failed));
        }
        if ran != Ran::Whole {
            return sent.predicted;
        }
        self.metrics.execution_errors.record(sent.predicted, latency);
        latency
    }

    /// Keeps a finished plan's memory for reuse.
    pub(crate) fn recycle(&mut self, sent: SentPlan) {
        self.sent.recycle(sent);
    }

    /// Reports the latency or the failure of a batch to the learner, if there is one and its queue has room.
    fn report_run(&mut self, gpu: u32, plan: &SentPlan, ran: Ran, took: Nanos) {
        let Some(runs) = &self.runs else { return };
        // Of whole batches of one model only: what rows of several take is no point of any profile.
        if plan.is_mixed() {
            return;
        }
        let (items, took) = match ran {
            Ran::Items(0) => return,
            Ran::Items(items) => (items, Some(took)),
            Ran::Whole => (plan.items(), Some(took)),
            Ran::Failed => (plan.items(), None),
        };
        if runs.push(Run { gpu, model: plan.model, items, took }).is_err() {
            count(&self.metrics.counters.unlearnt, 1);
        }
    }

    pub(super) fn record_end(&mut self, plan: &SentPlan, end: BatchEnd) {
        if !self.log.ended(plan.record, end) {
            count(&self.metrics.counters.unrecorded, 1);
        }
    }
}
