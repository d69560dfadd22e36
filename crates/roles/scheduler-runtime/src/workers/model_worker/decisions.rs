//! The steps of the queues and their results: offers, plans, drops and timers.

use symphony_explain::DropRecord;
use symphony_protocol::dispatch::EndReason;
use symphony_scheduler::{GrantWhy, ModelAction, ModelInput, Plan, PoolSignal, Request};
use symphony_types::{GpuClass, GpuId, Time};

use super::ModelWorker;
use crate::workers::counters::count;
use crate::workers::delivery::{Placed, end_reason};
use crate::workers::messages::{PlanId, RankMessage};

/// A grant as the rank worker made it.
#[derive(Clone, Copy)]
pub(super) struct Granted {
    /// The number reserved for the plan.
    pub(super) plan: PlanId,
    pub(super) class: GpuClass,
    pub(super) free_at: Time,
}

impl ModelWorker {
    pub(super) fn grant(
        &mut self,
        now: Time,
        slot: usize,
        class: GpuClass,
        free_at: Time,
        plan: PlanId,
        why: GrantWhy,
    ) {
        let gpu = GpuId::new(plan.gpu);
        // The plan is checked against its grant here; the rank worker checks the grant against the plan before it.
        // Together that is S1.
        self.check.busy_until(gpu, free_at);
        self.step_granted(
            now,
            slot,
            ModelInput::Grant { gpu, class, free_at, why },
            Some(Granted { plan, class, free_at }),
        );
    }

    #[inline]
    pub(super) fn step(&mut self, now: Time, slot: usize, input: ModelInput) {
        self.step_granted(now, slot, input, None);
    }

    /// One decision of a queue, executed; `granted` is set if the input is a grant.
    fn step_granted(&mut self, now: Time, slot: usize, input: ModelInput, granted: Option<Granted>) {
        let Some(model) = &mut self.slots[slot] else { return };
        let ordinal = model.ordinal;
        let mut actions = std::mem::take(&mut self.actions);
        // Cleared here and not at the end, where the cache line, just written, would have to be waited for.
        actions.clear();
        model.queue.step(now, input, &mut actions);
        self.tape.model_step(slot, now, &input, &actions);
        // Accounts count arrivals and drops only.
        if let ModelInput::Arrive(request) = input {
            self.account_is_stale = true;
            let counts = &model.member(&request).counts;
            count(&counts.arrived_items, u64::from(request.items));
            counts.request_items.record(u64::from(request.items));
        }
        let mut lost = None;
        let mut used = false;
        let mut wake_at = None;
        let mut unsent = Vec::new();
        for action in &actions.list {
            match action {
                ModelAction::Offer { answered, class, candidate } => self.offer(slot, *class, (*answered, *candidate)),
                ModelAction::Execute(plan) => {
                    let requests = actions.requests_of(plan);
                    used = granted.is_some_and(|granted| self.send_plan(now, slot, granted, plan, requests));
                    if !used {
                        unsent.extend_from_slice(requests);
                    }
                }
                ModelAction::Release { free_at, .. } => {
                    let Some(Granted { plan, free_at: was_free_at, .. }) = granted else { continue };
                    if !used {
                        count(&self.metrics.counters.grants_returned, 1);
                    }
                    self.send_to_rank(if unsent.is_empty() {
                        let free_at = if used { *free_at } else { was_free_at };
                        RankMessage::Release { ordinal, plan, free_at, used }
                    } else {
                        // The GPU has no route. Given back unchanged it would be granted again at once, over and over,
                        // until the end of its link is reported.
                        RankMessage::Lost { gpu: plan.gpu, seal: plan.seal }
                    });
                }
                ModelAction::Drop { request, reason, cause } => {
                    self.account_is_stale = true;
                    let Some(model) = &self.slots[slot] else { continue };
                    let member = model.member(request);
                    count(&member.counts.dropped, 1);
                    let lost = *lost.get_or_insert_with(|| !self.delivery.is_served(now));
                    let reason_told = end_reason(*reason, lost);
                    self.delivery.end(request.id, reason_told);
                    let record = DropRecord {
                        model: member.id.get(),
                        decided: now,
                        request: *request,
                        reason: *reason,
                        cause: Some(*cause),
                        lost: matches!(reason_told, EndReason::Failed(_)),
                    };
                    if !self.delivery.log.dropped(record) {
                        count(&self.metrics.counters.unrecorded, 1);
                    }
                }
                ModelAction::WakeAt(time) => wake_at = Some(*time),
            }
        }
        self.actions = actions;
        if let Some(model) = &mut self.slots[slot] {
            model.show_queued();
            if let Some(time) = wake_at {
                model.armed_in = self.turn;
                self.wakes.set(slot, time.as_nanos());
            }
        }
        for request in unsent {
            count(&self.metrics.counters.requeued_requests, 1);
            self.step(now, slot, ModelInput::Return(request));
        }
    }

    /// Sends a plan as granted. False if the GPU has no route; the requests stay with the queue.
    fn send_plan(&mut self, now: Time, slot: usize, granted: Granted, plan: &Plan, requests: &[Request]) -> bool {
        if let Err(violation) = self.check.check(now, plan) {
            count(&self.metrics.counters.violations, 1);
            symphony_telemetry::violated(violation.invariant, &violation.detail);
        }
        let Some(model) = &self.slots[slot] else { return false };
        let Some(member) = requests.first().map(|first| model.member(first)) else { return false };
        let placed = Placed { model: member.id, id: granted.plan, class: granted.class, plan, requests };
        self.delivery.queue_plan(now, placed, &member.counts)
    }

    pub(super) fn apply_signal(&mut self, now: Time, signal: PoolSignal) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some() {
                self.step(now, slot, ModelInput::Pool(signal));
            }
        }
    }
}
