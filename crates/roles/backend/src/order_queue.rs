//! The queue of orders at a GPU's thread, and the inputs of the plans in it.

use std::collections::VecDeque;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_executor::ModelExecutor;
use symphony_types::ModelId;

use crate::accepted_plan::{AcceptedPlan, GpuOrder, InputsOfFrontend, UnloadGuard};
use crate::batch::Batch;
use crate::unresponsive_frontends::{FrontendBoot, UnresponsiveFrontends};

/// How long after its planned start a plan waits for its inputs. A longer wait would make the plans behind it miss
/// their deadlines for one that has missed its own.
const INPUTS_LATE_MAX: Duration = Duration::from_millis(100);

/// The next order.
#[expect(clippy::large_enum_variant, reason = "nearly all of them are plans")]
pub(crate) enum QueuedOrder {
    Load(ModelId, Box<dyn ModelExecutor>),
    Unload(ModelId, Arc<UnloadGuard>),
    Plan(QueuedPlan),
}

/// A plan and its inputs so far.
pub(crate) struct QueuedPlan {
    pub(crate) plan: AcceptedPlan,
    pub(crate) inputs: Vec<Option<Bytes>>,
    /// When the last of them came, or was given up; when the plan came if it waited for none.
    pub(crate) inputs_at: Instant,
    /// The frontends that have answered or failed.
    answered: Vec<FrontendBoot>,
    /// Whether all frontends have.
    complete: bool,
    /// The batch, if its inputs are on their way to the device.
    pub(crate) batch: Option<Batch>,
}

/// The order queue of a GPU's thread.
pub(crate) struct OrderQueue<'a> {
    orders: &'a mpsc::Receiver<GpuOrder>,
    waiting: VecDeque<QueuedOrder>,
}

impl From<GpuOrder> for QueuedOrder {
    fn from(order: GpuOrder) -> Self {
        match order {
            GpuOrder::Load(model, executor) => Self::Load(model, executor),
            GpuOrder::Unload(model, unload_guard) => Self::Unload(model, unload_guard),
            GpuOrder::Run(plan) => {
                let (inputs, inputs_at) = (vec![None; plan.requests.len()], plan.accepted);
                Self::Plan(QueuedPlan { plan, inputs, inputs_at, answered: Vec::new(), complete: false, batch: None })
            }
        }
    }
}

impl QueuedPlan {
    /// Receives inputs until all frontends have answered. It waits for late ones too, unless earlier plans have waited
    /// for all the missing frontends without success. A frontend that does not answer costs only its own requests.
    pub(crate) fn gather(&mut self, unresponsive: &UnresponsiveFrontends) {
        while !self.complete {
            let missing = self.missing();
            let waits = unresponsive.any_responsive(&missing);
            let until = if waits { self.plan.start + INPUTS_LATE_MAX } else { self.plan.start };
            match self.plan.inputs.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(some) => self.take(some),
                Err(mpsc::RecvTimeoutError::Disconnected) => self.complete = true,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if waits {
                        unresponsive.mark_unresponsive(missing);
                    }
                    self.inputs_at = self.inputs_at.max(until);
                    return;
                }
            }
        }
    }

    /// The frontends that have not answered.
    fn missing(&self) -> Vec<FrontendBoot> {
        let mut missing: Vec<FrontendBoot> = self.plan.requests.iter().map(|r| (r.id.frontend, r.id.boot)).collect();
        missing.sort_unstable();
        missing.dedup();
        missing.retain(|frontend| !self.answered.contains(frontend));
        missing
    }

    /// Requests without an input: those of frontends that have not answered, and those that their frontend has no
    /// input for.
    pub(crate) fn without_input(&self) -> (u64, u64) {
        if self.inputs.iter().all(Option::is_some) {
            return (0, 0);
        }
        let missing = self.missing();
        let none = self.plan.requests.iter().zip(&self.inputs).filter(|(_, input)| input.is_none());
        let (late, gone): (Vec<_>, Vec<_>) = none.partition(|(r, _)| missing.contains(&(r.id.frontend, r.id.boot)));
        (late.len() as u64, gone.len() as u64)
    }

    /// Receives the inputs that have arrived; returns whether they are complete.
    pub(crate) fn gather_now(&mut self) -> bool {
        while !self.complete {
            match self.plan.inputs.try_recv() {
                Ok(some) => self.take(some),
                Err(mpsc::TryRecvError::Empty) => break,
                Err(mpsc::TryRecvError::Disconnected) => self.complete = true,
            }
        }
        self.complete
    }

    fn take(&mut self, InputsOfFrontend { frontend, inputs, at }: InputsOfFrontend) {
        self.inputs_at = self.inputs_at.max(at);
        self.answered.push(frontend);
        for (index, input) in inputs {
            self.inputs[index] = input;
        }
    }
}

impl<'a> OrderQueue<'a> {
    pub(crate) const fn new(orders: &'a mpsc::Receiver<GpuOrder>) -> Self {
        Self { orders, waiting: VecDeque::new() }
    }

    /// Waits for the next order; none if all senders are gone.
    pub(crate) fn next(&mut self) -> Option<QueuedOrder> {
        self.waiting.pop_front().or_else(|| self.orders.recv().ok().map(QueuedOrder::from))
    }

    /// The next plan in the queue.
    pub(crate) fn next_plan(&mut self) -> Option<&mut QueuedPlan> {
        self.waiting.extend(self.orders.try_iter().map(QueuedOrder::from));
        self.waiting.iter_mut().find_map(|coming| match coming {
            QueuedOrder::Plan(plan) => Some(plan),
            QueuedOrder::Load(..) | QueuedOrder::Unload(..) => None,
        })
    }
}
