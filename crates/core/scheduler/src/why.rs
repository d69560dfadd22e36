//! Why a decision was made: small values that travel with grants, plans and drops and are explained later. No decision
//! reads them.

use symphony_types::{GpuClass, Nanos, RequestValue, Time};

use crate::{DelaySource, GpuChoice, Pressure};

/// Other idle GPUs are counted up to this limit: only whether there was a choice matters, and the cost of counting must
/// not grow with the number of GPUs.
pub const IDLE_COUNTED_MAX: u8 = 8;

/// Why a model got a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantWhy {
    /// Whether the model or the GPU was ready first.
    pub matched: Matched,
    /// How the GPU was chosen.
    pub choice: GpuChoice,
    /// Other GPUs that were free by the same start, counted up to [`IDLE_COUNTED_MAX`].
    pub others_idle: u8,
    /// Other candidates in the ready set.
    pub rivals: u32,
    /// The next one of them.
    pub next_rival: Option<Rival>,
}

/// How a model and a GPU were matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Matched {
    /// Unknown: the grant does not come from a ranker.
    #[default]
    Untold,
    /// The candidate became due and took a GPU that is free by its start.
    AtItsStart,
    /// The candidate waited in the ready set and was first when a GPU became free.
    FirstInLine,
}

/// A candidate in the ready set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rival {
    /// The slot of its model.
    pub model: u32,
    /// When its window ends.
    pub latest: Time,
}

/// Why a batch plan looks as it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanWhy {
    /// Frontrun, the start of the window: from here on no further request could join.
    pub frontrun: Time,
    /// How long before frontrun a batch that waits for it becomes due: the guard for late timers.
    pub guard: Nanos,
    /// Latest, the end of the window: the last start at which the earliest deadline is met.
    pub latest: Time,
    /// Arrival of the request with the earliest deadline.
    pub head_arrived: Time,
    /// The target batch.
    pub target: u32,
    /// More urgent requests that were skipped: this GPU class cannot serve them usefully, but a faster one may.
    pub skipped: u32,
    /// Requests left in the queue, including those.
    pub left: u32,
    /// The planned input delay.
    pub inputs: Nanos,
    /// The origin of that delay.
    pub inputs_by: DelaySource,
    /// Why this GPU was chosen.
    pub grant: GrantWhy,
}

/// Why a request was given up, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropCause {
    /// The arrival of the request.
    pub arrived: Time,
    /// Deadline − reply delay: the time by which it had to end on a GPU.
    pub must_end_by: Time,
    /// The GPU class on which the batch below would have ended first.
    pub class: GpuClass,
    /// Items of the smallest batch that it could have joined: the batch that the drop rule protects, or its own items
    /// if they are more; zero if no batch was considered.
    pub batch: u32,
    /// The target batch; the drop rule protects min(target, requests behind).
    pub target: u32,
    /// The earliest end of a batch of `batch` items.
    pub batch_end: Time,
    /// When it would have ended alone on an idle GPU of the fastest class.
    pub alone_end: Time,
    /// Queued requests at that moment, including the request itself if it was admitted.
    pub waiting: u32,
    /// Why it was shed, if so.
    pub shed: Option<ShedCause>,
}

/// Why a request was shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShedCause {
    /// The pressure on its sub-cluster.
    pub pressure: Pressure,
    /// The value of its model's requests.
    pub value: RequestValue,
}
