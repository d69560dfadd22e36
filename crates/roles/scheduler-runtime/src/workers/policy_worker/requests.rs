//! The requests as the policy knows them.

use symphony_scheduler::{ClusterInput, Request};
use symphony_types::{BootId, DropReason, FailReason, FrontendId, GpuId, ModelId, Nanos, RequestId, Time};

use super::PolicyWorker;
use crate::workers::delivery::{Delivery, EnqueueKind, Host};
use crate::workers::messages::{PlanId, SealNumber};
use crate::workers::sent_plans::SentPlan;

impl PolicyWorker {
    /// The policy owns a request from now on.
    pub(super) fn hand_in(&mut self, now: Time, slot: u32, request: Request, is_new: bool) {
        // A frontend that announces a request twice must not make the policy look faulty.
        if self.referee.owned(request.id).is_some() {
            return;
        }
        let Some(model) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else {
            return self.delivery.end_unserved(request.id);
        };
        let is_full = is_new && model.waiting >= model.requests_max;
        model.came(1);
        if is_full {
            return self.drop_request(now, slot, &request, (DropReason::QueueFull, None));
        }
        let model = slot;
        let new = ClusterInput::Arrive { model, request };
        self.step(now, if is_new { new } else { ClusterInput::Return { model, request } });
    }

    fn cancel_one(&mut self, now: Time, slot: u32, request: Request) {
        if let Some(model) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) {
            model.left(1);
        }
        self.step(now, ClusterInput::Cancel { model: slot, request });
    }
}

impl Host for PolicyWorker {
    fn delivery(&mut self) -> &mut Delivery {
        &mut self.delivery
    }

    fn enqueue(&mut self, now: Time, model: ModelId, request: Request, kind: EnqueueKind) {
        let Some(&slot) = self.by_id.get(&model) else { return self.delivery.end_unserved(request.id) };
        // No frontend sends a request without items, and no policy need think of one.
        let request = Request { items: request.items.max(1), ..request };
        let is_new = kind == EnqueueKind::New;
        if is_new {
            self.measure(now, slot, request.items);
        }
        self.hand_in(now, slot, request, is_new);
    }

    fn cancel(&mut self, now: Time, model: ModelId, ids: &mut dyn ExactSizeIterator<Item = RequestId>) {
        let Some(&slot) = self.by_id.get(&model) else { return };
        for id in ids {
            if let Some((of, request)) = self.referee.owned(id)
                && of == slot
            {
                self.cancel_one(now, slot, request);
            }
        }
    }

    fn withdraw(&mut self, now: Time, frontend: FrontendId, boot: BootId) {
        for (slot, request) in self.referee.all_owned() {
            // At each cancel the policy may decide about others of them.
            let leaves = (request.id.frontend, request.id.boot) == (frontend, boot);
            if leaves && self.referee.owned(request.id).is_some() {
                self.cancel_one(now, slot, request);
            }
        }
    }

    fn plan_done(
        &mut self,
        now: Time,
        plan: PlanId,
        sent: SentPlan,
        measured: (Nanos, Nanos),
        failed: &[(RequestId, FailReason)],
    ) {
        let slot = self.by_id.get(&sent.model).and_then(|&slot| self.slots[slot as usize].as_ref());
        let counts = slot.map(|model| &*model.counts);
        let latency = self.delivery.batch_done(now, plan.gpu, &sent, measured, failed, |_| counts);
        let slot = self.by_id.get(&sent.model).copied();
        if let Some(model) = slot.and_then(|slot| self.slots[slot as usize].as_mut()) {
            model.lateness.record(measured.0 + (latency - sent.predicted), Nanos::ZERO, sent.predicted);
        }
        self.delivery.recycle(sent);
        let Some(out) = self.gpus.get_mut(plan.gpu as usize).and_then(|gpu| gpu.ended(plan)) else { return };
        let (gpu, start_late) = (GpuId::new(plan.gpu), measured.0);
        self.step(now, ClusterInput::Done { gpu, model: out.model, start: out.start, start_late, latency });
        self.settle(now, plan.gpu);
    }

    fn plan_refused(&mut self, now: Time, plan: PlanId, _: &SentPlan) {
        let Some(out) = self.gpus.get_mut(plan.gpu as usize).and_then(|gpu| gpu.ended(plan)) else { return };
        let gpu = GpuId::new(plan.gpu);
        self.step(now, ClusterInput::Refused { gpu, model: out.model, start: out.start });
        self.settle(now, plan.gpu);
    }

    fn gpu_lost(&mut self, now: Time, gpu: u32, seal: SealNumber) {
        self.lost(now, gpu, seal);
    }
}
