//! The steps of the policy and their results.

use symphony_explain::DropRecord;
use symphony_protocol::dispatch::EndReason;
use symphony_scheduler::{ClusterAction, ClusterActions, ClusterInput, DropCause, Plan, PolicyFault, Request};
use symphony_types::{DropReason, Time};

use super::PolicyWorker;
use super::gpus::Gpu;
use crate::workers::counters::count;
use crate::workers::delivery::{Placed, end_reason, give_back};
use crate::workers::messages::PlanId;

/// What of a step could not be carried out.
#[derive(Default)]
struct Undone {
    /// GPUs whose links have ended without having reported it yet.
    gpus: Vec<u32>,
    /// The requests that were planned there, by model slot.
    requests: Vec<(u32, Request)>,
}

impl PolicyWorker {
    /// One decision, executed.
    pub(super) fn step(&mut self, now: Time, input: ClusterInput) {
        if self.is_over {
            return;
        }
        let mut actions = std::mem::take(&mut self.actions);
        actions.clear();
        if let Err(fault) = self.checked(now, input, &mut actions) {
            self.is_over = true;
            self.fault.send_replace(Some(fault));
            return;
        }
        let mut undone = Undone::default();
        for action in &actions.list {
            match action {
                ClusterAction::Execute { model, plan } => {
                    self.execute(now, *model, plan, actions.requests_of(plan), &mut undone);
                }
                ClusterAction::Drop { model, request, reason, cause } => {
                    self.drop_request(now, *model, request, (*reason, *cause));
                }
                ClusterAction::WakeAt(time) => {
                    self.wake_at = *time;
                    self.armed_in = self.turn;
                }
                // No backend can; the referee has refused it.
                ClusterAction::Preempt(_) => {}
            }
        }
        self.actions = actions;
        self.requeue(now, undone);
    }

    /// One decision, checked. Of a step with a fault nothing is done.
    fn checked(&mut self, now: Time, input: ClusterInput, actions: &mut ClusterActions) -> Result<(), PolicyFault> {
        self.referee.observe(now, &input);
        let kept = self.tape.is_on().then(|| input.clone());
        self.policy.step(now, input, actions)?;
        if let Some(input) = kept {
            self.tape.cluster_step(now, &input, actions);
        }
        let waiting = self.policy.waiting();
        self.referee.ordered(now, actions, waiting).map_err(|violation| self.policy.violated(violation))
    }

    fn execute(&mut self, now: Time, model: u32, plan: &Plan, requests: &[Request], undone: &mut Undone) {
        // The referee has found both.
        let Some(slot) = self.slots.get_mut(model as usize).and_then(Option::as_mut) else { return };
        let Some(gpu) = self.gpus.get_mut(plan.gpu.get() as usize) else { return };
        let sent = gpu.seal.is_some_and(|seal| {
            let id = PlanId { gpu: plan.gpu.get(), seal, sequence: gpu.next };
            let placed = Placed { model: slot.id, id, class: gpu.class, plan, requests };
            self.delivery.queue_plan(now, placed, &slot.counts)
        });
        slot.left(requests.len() as u64);
        if sent {
            gpu.sent(model, plan.start);
        } else {
            undone.gpus.push(plan.gpu.get());
            undone.requests.extend(requests.iter().map(|request| (model, *request)));
        }
    }

    /// A GPU whose link has ended is as good as lost: its link says so later. What was planned there waits again.
    fn requeue(&mut self, now: Time, undone: Undone) {
        for gpu in undone.gpus {
            let Some(seal) = self.gpus.get_mut(gpu as usize).and_then(Gpu::lose) else { continue };
            self.settle(now, gpu);
            give_back(self, now, gpu, seal);
        }
        for (model, request) in undone.requests {
            count(&self.metrics.counters.requeued_requests, 1);
            self.hand_in(now, model, request, false);
        }
    }

    /// The outcome of a request that has waited.
    pub(super) fn drop_request(
        &mut self,
        now: Time,
        model: u32,
        request: &Request,
        why: (DropReason, Option<DropCause>),
    ) {
        let Some(slot) = self.slots.get_mut(model as usize).and_then(Option::as_mut) else { return };
        slot.left(1);
        count(&slot.counts.dropped, 1);
        let (reason, cause) = why;
        let model = slot.id.get();
        let reported = end_reason(reason, !self.delivery.is_served(now));
        self.delivery.end(request.id, reported);
        let lost = matches!(reported, EndReason::Failed(_));
        let record = DropRecord { model, decided: now, request: *request, reason, cause, lost };
        if !self.delivery.log.dropped(record) {
            count(&self.metrics.counters.unrecorded, 1);
        }
    }
}
