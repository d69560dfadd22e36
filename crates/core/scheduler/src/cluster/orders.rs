//! How a policy for a cluster gives its orders.

use symphony_types::{DropReason, GpuClass, GpuId, Time};

use crate::actions::{Plan, Request};
use crate::cluster::model::ClusterModel;
use crate::cluster_policy::{ClusterAction, ClusterActions};

/// The most orders of one step, and the most requests in its plans: more than a sub-cluster's queues hold together in
/// any load that can still be served, in 130 MB. A step that reaches it would not have ended.
pub const CLUSTER_ORDERS_MAX: usize = 1 << 19;

/// The payload of the unwinding that ends a step with too many orders.
pub(crate) struct TooManyOrders;

impl ClusterActions {
    /// Plans a batch of these requests on the GPU, which is of this class, to start at `start`. Returns the plan, whose
    /// end is when the GPU is free again; without an order and `None` if the batch is empty or does not run on the
    /// class.
    pub fn plan(
        &mut self,
        model: u32,
        known: &ClusterModel,
        (gpu, class): (GpuId, GpuClass),
        start: Time,
        requests: impl IntoIterator<Item = Request>,
    ) -> Option<Plan> {
        let first = self.planned.len();
        let (mut items, mut must_end_by) = (0_u32, Time::NEVER);
        for request in requests {
            if self.planned.len() >= CLUSTER_ORDERS_MAX {
                too_many();
            }
            items = items.saturating_add(request.items);
            must_end_by = must_end_by.min(known.must_end_by(&request));
            self.planned.push(request);
        }
        let requests = self.planned.len() - first;
        if requests == 0 || items > known.batch_max(class) {
            self.planned.truncate(first);
            return None;
        }
        let end = start + known.latency(class, items);
        let (first, requests) = (first as u32, requests as u32);
        let plan = Plan { gpu, start, end, batch: items, must_end_by, first, requests, why: None };
        self.push(ClusterAction::Execute { model, plan });
        Some(plan)
    }

    /// Ends a request without a result, for this reason.
    pub fn give_up(&mut self, model: u32, request: Request, reason: DropReason) {
        self.push(ClusterAction::Drop { model, request, reason, cause: None });
    }

    /// Stops a GPU: see [`ClusterAction::Preempt`].
    pub fn preempt(&mut self, gpu: GpuId) {
        self.push(ClusterAction::Preempt(gpu));
    }

    /// Asks for a [`Wake`](crate::ClusterInput::Wake) at this time, in place of the one asked for before.
    pub fn wake_at(&mut self, at: Time) {
        self.push(ClusterAction::WakeAt(at));
    }

    fn push(&mut self, action: ClusterAction) {
        if self.list.len() >= CLUSTER_ORDERS_MAX {
            too_many();
        }
        self.list.push(action);
    }
}

/// Ends the step of a policy that orders for ever; its host catches it. Without the report of a panic: it is none.
#[cold]
fn too_many() -> ! {
    std::panic::resume_unwind(Box::new(TooManyOrders))
}
