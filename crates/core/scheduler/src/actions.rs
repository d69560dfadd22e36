//! Inputs and outputs of a decision.

use symphony_types::{
    BootId, DropReason, FrontendId, GpuClass, GpuClasses, GpuId, Nanos, RequestId, RequestValue, Time,
};

use crate::pool::signal::PoolSignal;
use crate::why::{DropCause, GrantWhy, PlanWhy};
use crate::{GpuChoice, ReadyOrder};

/// A request as the scheduler sees it: id, size and deadline. Its input stays with its frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Frontend, boot and number: no other request ever has it.
    pub id: RequestId,
    /// The time by which its answer must be at the client.
    pub deadline: Time,
    /// Number of items, at least one.
    pub items: u32,
    /// What it is worth relative to the model's other requests when some must be shed.
    pub weight: RequestValue,
    /// Which variant of its family it calls: its place in it, or the number that the queue was given for it. A live one
    /// is the model's id. Queues of models that share no trunk ignore it.
    pub variant: u32,
}

/// The batch a model would run now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Items in the batch.
    pub batch: u32,
    /// When the batch wants to start on the GPU.
    pub start: Time,
    /// The last start at which the batch meets its earliest deadline: D − ℓ(b), less a margin for a longer execution.
    pub latest: Time,
    /// From here on no further request could join the batch: D − ℓ(b+k) − d·k, less the same margin, where k is the
    /// mean number of items per request.
    pub frontrun: Time,
    /// The earliest deadline in it, less the reply delay: D.
    pub must_end_by: Time,
    /// How long before its start a plan must be sent: control delay and the data delay of its items.
    pub lead: Nanos,
    /// How far the candidate is moved ahead in the ready order, because its model has long lost more than its share
    /// (docs/adr/0011).
    pub ahead: Nanos,
    /// The candidate's key in the ready set while it waits for a GPU. This and the choice of a GPU differ in scenarios
    /// only (docs/adr/0033).
    pub ready_order: ReadyOrder,
    /// How a GPU is chosen among several usable ones.
    pub gpu_choice: GpuChoice,
}

impl Candidate {
    /// The sort key in the ready set; the smallest key comes first, whatever the order is.
    #[must_use]
    pub fn place_in_line(&self) -> Time {
        let place = match self.ready_order {
            ReadyOrder::Latest => self.latest,
            ReadyOrder::Frontrun => self.frontrun,
            ReadyOrder::Start => self.start,
            ReadyOrder::Deadline => self.must_end_by,
        };
        place - self.ahead
    }
}

/// Input of a [`ModelQueue`](crate::ModelQueue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelInput {
    /// A request arrived.
    Arrive(Request),
    /// A request that was queued before: returned from a plan that did not run, or redriven by its frontend. It waits
    /// again but does not count as an arrival for the measured rates.
    Return(Request),
    /// As [`Return`](Self::Return), when more come back: a candidate is formed with the last of them.
    ReturnWithNext(Request),
    /// The client withdrew a request.
    Cancel(RequestId),
    /// As [`Cancel`](Self::Cancel), when more cancellations follow: the request leaves the queue together with them, in
    /// one pass, at the next input of another type.
    CancelWithNext(RequestId),
    /// A frontend is gone: its requests leave the queue without an outcome. The frontend redrives them if it still
    /// needs them.
    Withdraw {
        /// The frontend that is gone.
        frontend: FrontendId,
        /// The frontend's boot id.
        boot: BootId,
    },
    /// The rank worker gives a GPU that is free at `free_at`; it expects exactly one
    /// [`ModelAction::Release`] in answer (invariant S4).
    Grant {
        /// The granted GPU: the queue's own until its release.
        gpu: GpuId,
        /// The class by which the queue knows its profile there.
        class: GpuClass,
        /// When it becomes free; may be in the past.
        free_at: Time,
        /// Why this model got the GPU; copied into the plan.
        why: GrantWhy,
    },
    /// The GPU classes in the sub-cluster now. Until this input first comes, the queue assumes the classes that it was
    /// configured with. Classes without a profile are not used.
    Classes(GpuClasses),
    /// A plan of this model has ended: measurements of it.
    Done {
        /// How much later than planned it started.
        start_late: Nanos,
        /// The measured execution time.
        latency: Nanos,
        /// The planned execution time.
        predicted: Nanos,
    },
    /// The pool signal of the sub-cluster: how much to shed (docs/adr/0011) and how early batches may start
    /// (docs/adr/0008).
    Pool(PoolSignal),
    /// The time of the last [`ModelAction::WakeAt`] has come. Early or repeated wake-ups are harmless.
    Wake,
}

/// A batch plan: the order to run part of the queue on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The GPU that runs the batch.
    pub gpu: GpuId,
    /// When the GPU is to start. A backend starts before if it can (docs/adr/0046).
    pub start: Time,
    /// The predicted end of execution on the GPU.
    pub end: Time,
    /// Items in the batch.
    pub batch: u32,
    /// The earliest deadline in it, less the reply delay: `end` must not be later (invariant S2).
    pub must_end_by: Time,
    /// Index in [`Orders::planned`] of the plan's first request.
    pub first: u32,
    /// Number of its requests.
    pub requests: u32,
    /// Why the plan looks as it does; `None` from policies that do not explain themselves.
    pub why: Option<PlanWhy>,
}

/// Output of a [`ModelQueue`](crate::ModelQueue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelAction {
    /// Send the newest candidate for a GPU class to the rank worker. It replaces older ones of that class, which may be
    /// skipped.
    Offer {
        /// Grants answered so far. The rank worker ignores offers that are older than its last grant.
        answered: u64,
        /// The class for which the batch was formed.
        class: GpuClass,
        /// The candidate, or none if there is nothing to run.
        candidate: Option<Candidate>,
    },
    /// Send the plan to the GPU's backend.
    Execute(Plan),
    /// Answer to a grant: the GPU is free at `free_at`. If the grant was not used, this is the grant's own `free_at`.
    Release {
        /// The GPU that was granted.
        gpu: GpuId,
        /// When it is free again.
        free_at: Time,
    },
    /// The request's outcome: dropped.
    Drop {
        /// The dropped request, as it arrived.
        request: Request,
        /// The reason, as clients and metrics see it.
        reason: DropReason,
        /// What caused the drop.
        cause: DropCause,
    },
    /// Call [`ModelInput::Wake`] at this time; replaces the previous `WakeAt`. [`Time::NEVER`] cancels it.
    WakeAt(Time),
}

/// Input of a [`GpuRanker`](crate::GpuRanker). Models are named by dense slots `0..models`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankInput {
    /// The newest candidate of a model for a GPU class. A grant uses up the model's candidates for all classes.
    Offer {
        /// The model's slot.
        model: u32,
        /// Grants the model has answered so far.
        answered: u64,
        /// The class for which the batch was formed.
        class: GpuClass,
        /// The batch the model would run there, or none if there is nothing to run.
        candidate: Option<Candidate>,
    },
    /// The answer to a grant: the GPU will be free at `free_at`.
    Release {
        /// The model's slot.
        model: u32,
        /// The GPU that was granted.
        gpu: GpuId,
        /// When it is free.
        free_at: Time,
        /// Whether the GPU runs plans whose ends are reported: then it counts as busy until the last report, however
        /// late.
        report_due: bool,
    },
    /// The GPU is available, for the first time or again, and of this class. GPUs that only their backend has announced
    /// are of the first class. Ignored while the GPU is granted.
    Add {
        /// The GPU that may be granted from now on.
        gpu: GpuId,
        /// The class by which candidates are matched to it.
        class: GpuClass,
        /// When it is free.
        free_at: Time,
    },
    /// The backend reports when the GPU is really free. Ignored while the GPU is granted.
    BusyUntil {
        /// The GPU that the report is about.
        gpu: GpuId,
        /// When it is free; [`Time::NEVER`] while it must not be used.
        free_at: Time,
        /// Whether it runs plans whose ends are reported.
        report_due: bool,
    },
    /// The GPU has been removed.
    Remove(GpuId),
    /// The model has been removed.
    Forget(u32),
    /// The time of the last [`RankAction::WakeAt`] has come. Early or repeated wake-ups are harmless.
    Wake,
}

/// Output of a [`GpuRanker`](crate::GpuRanker).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankAction {
    /// Give the GPU to the model.
    Grant {
        /// The model's slot.
        model: u32,
        /// The granted GPU; it is not granted again before its release.
        gpu: GpuId,
        /// The class whose candidate won.
        class: GpuClass,
        /// When it is free.
        free_at: Time,
        /// Why this GPU, and why this model.
        why: GrantWhy,
    },
    /// Call [`RankInput::Wake`] at this time; replaces the previous `WakeAt`. [`Time::NEVER`] cancels it.
    WakeAt(Time),
}

/// The orders of one step. The host owns and reuses it, so that a step does not allocate once the vectors have grown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders<A> {
    /// The orders, in the order of execution.
    pub list: Vec<A>,
    /// The requests of the plans in `list`, at [`Plan::first`].
    pub planned: Vec<Request>,
}

/// What one step of a [`ModelQueue`](crate::ModelQueue) ordered.
pub type ModelActions = Orders<ModelAction>;

/// The most orders of one step, drops aside: an offer per GPU class, a plan, a release and a timer. Room for them is
/// allocated at the start, since a step that gives all of them may be the first in an hour.
const ORDERS_AT_ONCE: usize = symphony_types::GPU_CLASSES_MAX + 8;

/// An empty list without memory: the placeholder while a host executes the orders. Hosts start with
/// [`Orders::with_room`].
impl<A> Default for Orders<A> {
    fn default() -> Self {
        Self { list: Vec::new(), planned: Vec::new() }
    }
}

impl<A> Orders<A> {
    /// An empty list with room for the orders of any step, drops aside.
    #[must_use]
    pub fn with_room() -> Self {
        Self { list: Vec::with_capacity(ORDERS_AT_ONCE), planned: Vec::new() }
    }

    /// The requests of a plan.
    ///
    /// # Panics
    /// If the plan is not from this list: an error of the host.
    #[must_use]
    pub fn requests_of(&self, plan: &Plan) -> &[Request] {
        &self.planned[plan.first as usize..(plan.first + plan.requests) as usize]
    }

    /// Removes all orders and keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.planned.clear();
    }
}

/// What one step of a [`GpuRanker`](crate::GpuRanker) ordered; owned by the host and reused.
pub type RankActions = Vec<RankAction>;
