//! Orders that have arrived at a GPU's thread, in their order, and the inputs of the plans among them.

use std::collections::VecDeque;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use bytes::Bytes;
use symphony_executor::ModelExecutor;
use symphony_types::ModelId;

use crate::batch::Batch;
use crate::plan::{AcceptedPlan, GpuOrder, LetGo};

/// What comes next.
pub(crate) enum Coming {
    Load(ModelId, Box<dyn ModelExecutor>),
    Unload(ModelId, Arc<LetGo>),
    Plan(ComingPlan),
}

/// A plan and what has arrived for it.
pub(crate) struct ComingPlan {
    pub(crate) plan: AcceptedPlan,
    pub(crate) inputs: Vec<Option<Bytes>>,
    /// Whether all owners have answered, or failed to.
    complete: bool,
    /// The batch, if its inputs are on their way to the device.
    pub(crate) batch: Option<Batch>,
}

/// The queue of a GPU's thread.
pub(crate) struct Ahead<'a> {
    orders: &'a mpsc::Receiver<GpuOrder>,
    waiting: VecDeque<Coming>,
}

impl From<GpuOrder> for Coming {
    fn from(order: GpuOrder) -> Self {
        match order {
            GpuOrder::Load(model, executor) => Self::Load(model, executor),
            GpuOrder::Unload(model, let_go) => Self::Unload(model, let_go),
            GpuOrder::Run(plan) => {
                let inputs = vec![None; plan.requests.len()];
                Self::Plan(ComingPlan { plan, inputs, complete: false, batch: None })
            }
        }
    }
}

impl ComingPlan {
    /// Takes every input that arrives until `late`. An owner that does not answer costs its own requests only.
    pub(crate) fn gather_until(&mut self, late: Instant) {
        while !self.complete {
            match self.plan.inputs.recv_timeout(late.saturating_duration_since(Instant::now())) {
                Ok(some) => self.take(some),
                // All have answered, or it is late.
                Err(_) => return,
            }
        }
    }

    /// Takes the inputs that are there, and says whether that is all.
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

    fn take(&mut self, some: Vec<(usize, Option<Bytes>)>) {
        for (index, input) in some {
            self.inputs[index] = input;
        }
    }
}

impl<'a> Ahead<'a> {
    pub(crate) const fn new(orders: &'a mpsc::Receiver<GpuOrder>) -> Self {
        Self { orders, waiting: VecDeque::new() }
    }

    /// What comes next, when it comes; none if nobody can send any more.
    pub(crate) fn next(&mut self) -> Option<Coming> {
        self.waiting.pop_front().or_else(|| self.orders.recv().ok().map(Coming::from))
    }

    /// The next plan among what has arrived.
    pub(crate) fn next_plan(&mut self) -> Option<&mut ComingPlan> {
        self.waiting.extend(self.orders.try_iter().map(Coming::from));
        self.waiting.iter_mut().find_map(|coming| match coming {
            Coming::Plan(plan) => Some(plan),
            Coming::Load(..) | Coming::Unload(..) => None,
        })
    }
}
