//! What goes into a decision and what comes out of it.

use symphony_types::{BootId, DropReason, FrontendId, GpuClass, GpuClasses, GpuId, Nanos, RequestId, Time};

use crate::pool::signal::PoolSignal;
use crate::why::{DropCause, GrantWhy, PlanWhy};
use crate::{GpuChoice, ReadyOrder};

/// A request as the scheduler sees it: who, how much, until when. Its input stays with its frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whose request it is.
    pub id: RequestId,
    /// The time by which its answer must be at the client.
    pub deadline: Time,
    /// Items in it, at least one.
    pub items: u32,
}

/// The batch a model would run now (DESIGN section 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Items in the batch.
    pub batch: u32,
    /// When the batch wants to start on the GPU.
    pub start: Time,
    /// The last start at which its earliest deadline is met: D − ℓ(b), and the room for a longer execution.
    pub latest: Time,
    /// From here on no further arrival could join: D − ℓ(b+k) − d·k, less the same room, where requests have k items in
    /// the mean.
    pub frontrun: Time,
    /// The earliest deadline in it, less the reply delay: D.
    pub must_end_by: Time,
    /// How long before its start a plan must be sent: control delay and the data delay of its items.
    pub lead: Nanos,
    /// How far ahead of its place in line it is put: its model has lost more than its part for long (docs/adr/0011).
    pub ahead: Nanos,
    /// Its place in line, if it has to wait for a GPU.
    pub ready_order: ReadyOrder,
    /// Which of several usable GPUs it gets.
    pub gpu_choice: GpuChoice,
}

impl Candidate {
    /// Its place in the line of those that wait for a GPU; the earliest comes first, whatever it goes by.
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
    /// A request that was here before: back from a plan that did not run, or announced again by its frontend. It waits
    /// again, and is no arrival by which rates are measured.
    Return(Request),
    /// The client withdrew a request.
    Cancel(RequestId),
    /// The same, and more of them follow: it leaves with the next input that is another one, all in one pass.
    CancelWithNext(RequestId),
    /// A frontend has gone: its requests leave the queue without an outcome. It announces them again if it still wants
    /// them.
    Withdraw {
        /// The frontend.
        frontend: FrontendId,
        /// Its life.
        boot: BootId,
    },
    /// The rank thread gives a GPU that is free at `free_at`; it expects exactly one
    /// [`ModelAction::Release`] in answer (invariant S4).
    Grant {
        /// The GPU.
        gpu: GpuId,
        /// Its class.
        class: GpuClass,
        /// When it becomes free; may be in the past.
        free_at: Time,
        /// Why this model got it; goes into the plan.
        why: GrantWhy,
    },
    /// The sub-cluster has GPUs of these classes now. Before the first word on it these are the classes that the queue
    /// was configured with; what it has no profile for it does not serve with.
    Classes(GpuClasses),
    /// A plan of this model has ended: what can be learnt from it.
    Done {
        /// By how much it started later than planned.
        start_late: Nanos,
        /// How long it really took.
        latency: Nanos,
        /// How long it was planned to take.
        predicted: Nanos,
    },
    /// What the sub-cluster says to all: what they have to give up (docs/adr/0011), and how early batches start
    /// (docs/adr/0008).
    Pool(PoolSignal),
    /// The time of the last [`ModelAction::WakeAt`] has come. Early or repeated wake-ups are harmless.
    Wake,
}

/// A batch plan: the order to run a part of the queue on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where.
    pub gpu: GpuId,
    /// When the GPU starts.
    pub start: Time,
    /// The predicted end of execution on the GPU.
    pub end: Time,
    /// Items in the batch.
    pub batch: u32,
    /// The earliest deadline in it, less the reply delay: `end` must not be later (invariant S2).
    pub must_end_by: Time,
    /// Where its requests stand in [`Orders::planned`]: index of the first one, and their number.
    pub first: u32,
    /// Number of its requests.
    pub requests: u32,
    /// Why it is what it is; none from policies that do not say.
    pub why: Option<PlanWhy>,
}

/// Output of a [`ModelQueue`](crate::ModelQueue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelAction {
    /// Tell the rank thread the newest candidate for a class of GPUs; the last one for each counts, older ones may be
    /// skipped.
    Offer {
        /// Grants answered so far. The rank thread ignores offers older than its last grant.
        answered: u64,
        /// The class.
        class: GpuClass,
        /// The candidate, or none if there is nothing to run.
        candidate: Option<Candidate>,
    },
    /// Send the plan to the GPU's backend.
    Execute(Plan),
    /// Answer to a grant: the GPU is free at `free_at`. After an unused grant this is the time that came with it.
    Release {
        /// The GPU that was granted.
        gpu: GpuId,
        /// When it is free again.
        free_at: Time,
    },
    /// The request has its outcome: dropped.
    Drop {
        /// The request.
        request: Request,
        /// Why.
        reason: DropReason,
        /// What made it so.
        cause: DropCause,
    },
    /// Call [`ModelInput::Wake`] at this time; replaces the time asked for before. [`Time::NEVER`] cancels it.
    WakeAt(Time),
}

/// Input of a [`GpuRanker`](crate::GpuRanker). Models are named by dense slots `0..models`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankInput {
    /// The newest candidate of a model for a class of GPUs. A grant takes those for all classes.
    Offer {
        /// The model's slot.
        model: u32,
        /// Grants the model has answered so far.
        answered: u64,
        /// The class.
        class: GpuClass,
        /// Its candidate.
        candidate: Option<Candidate>,
    },
    /// The answer to a grant: the GPU will be free at `free_at`.
    Release {
        /// The model's slot.
        model: u32,
        /// The GPU.
        gpu: GpuId,
        /// When it is free.
        free_at: Time,
        /// Whether it runs plans whose ends are reported: then it is busy until the last report, whenever that comes.
        report_due: bool,
    },
    /// The GPU is there, or there again, and of this class. Of those that only their backend speaks of, all are of the
    /// first class. Ignored while the GPU is granted.
    Add {
        /// The GPU.
        gpu: GpuId,
        /// Its class.
        class: GpuClass,
        /// When it is free.
        free_at: Time,
    },
    /// The backend says when the GPU is really free. Ignored while the GPU is granted.
    BusyUntil {
        /// The GPU.
        gpu: GpuId,
        /// When it is free; [`Time::NEVER`] while it must not be used.
        free_at: Time,
        /// Whether it runs plans whose ends are reported.
        report_due: bool,
    },
    /// The GPU is gone.
    Remove(GpuId),
    /// The model is gone.
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
        /// The GPU.
        gpu: GpuId,
        /// Its class.
        class: GpuClass,
        /// When it is free.
        free_at: Time,
        /// Why this GPU, and why this model.
        why: GrantWhy,
    },
    /// Call [`RankInput::Wake`] at this time; replaces the time asked for before. [`Time::NEVER`] cancels it.
    WakeAt(Time),
}

/// What one step ordered. Owned by the host and reused, so that a step does not allocate once its vectors have grown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders<A> {
    /// The orders, in the order in which they must be carried out.
    pub list: Vec<A>,
    /// The requests of the plans in `list`, at [`Plan::first`].
    pub planned: Vec<Request>,
}

/// What one step of a [`ModelQueue`](crate::ModelQueue) ordered.
pub type ModelActions = Orders<ModelAction>;

/// Orders that one step gives, but for drops: an offer for each class of GPUs, a plan, a release, a timer. Room for
/// them is made at the start, since a step that gives all of them may be the first of its kind in an hour.
const ORDERS_AT_ONCE: usize = symphony_types::GPU_CLASSES_MAX + 8;

/// Nothing, without memory: what a host leaves in its place while it carries orders out. It starts with
/// [`Orders::with_room`].
impl<A> Default for Orders<A> {
    fn default() -> Self {
        Self { list: Vec::new(), planned: Vec::new() }
    }
}

impl<A> Orders<A> {
    /// No orders yet, with room for those of any step but its drops.
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

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.planned.clear();
    }
}

/// What one step of a [`GpuRanker`](crate::GpuRanker) ordered; owned by the host and reused.
pub type RankActions = Vec<RankAction>;
