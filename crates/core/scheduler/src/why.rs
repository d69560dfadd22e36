//! Why a decision was made: small values that travel with grants, plans and drops, for whoever explains them later. No
//! decision reads them.

use symphony_types::{GpuClass, Nanos, RequestValue, Time};

use crate::{DelaySource, GpuChoice, Pressure};

/// Other idle GPUs are counted up to this many: what matters is whether there was a choice, and the count must not cost
/// more with more GPUs.
pub const IDLE_COUNTED_MAX: u8 = 8;

/// Why a GPU went to a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantWhy {
    /// Who found whom.
    pub matched: Matched,
    /// Which of several GPUs was taken.
    pub choice: GpuChoice,
    /// Other GPUs that were free by the same start, counted up to [`IDLE_COUNTED_MAX`].
    pub others_idle: u8,
    /// Other candidates that were due and waited for a GPU.
    pub rivals: u32,
    /// The one of them that is next.
    pub next_rival: Option<Rival>,
}

/// How a model and a GPU came together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Matched {
    /// Nobody said: a grant that no ranker made.
    #[default]
    Untold,
    /// The candidate was due, and found a GPU that is free by its start.
    AtItsStart,
    /// The candidate had waited for a GPU, and was the first in line when one came free.
    FirstInLine,
}

/// A candidate that waited for a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rival {
    /// The slot of its model.
    pub model: u32,
    /// When its window ends.
    pub latest: Time,
}

/// Why a batch plan is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanWhy {
    /// Where the window begins: from here on no further arrival could join.
    pub frontrun: Time,
    /// How long before frontrun a batch that waits for it becomes due: the model's guard against late timers.
    pub guard: Nanos,
    /// Where it ends: the last start at which the earliest deadline is met.
    pub latest: Time,
    /// When the request with the earliest deadline arrived.
    pub head_arrived: Time,
    /// The batch size that the queue aimed at.
    pub target: u32,
    /// More urgent requests that were passed over: this class of GPUs could not serve them usefully, a faster one may.
    pub skipped: u32,
    /// Requests that were left in the queue, those included.
    pub left: u32,
    /// How long its inputs were given to come to the backend.
    pub inputs: Nanos,
    /// Who says that they need so long.
    pub inputs_by: DelaySource,
    /// Why this GPU.
    pub grant: GrantWhy,
}

/// What made a request be given up, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropCause {
    /// When it arrived.
    pub arrived: Time,
    /// By when it had to end on a GPU: its deadline less the reply delay.
    pub must_end_by: Time,
    /// The class of GPUs on which the batch below would have ended first.
    pub class: GpuClass,
    /// Items of the smallest batch that it could have been part of: what the drop rule protects, or its own items if
    /// they are more; zero if no batch was looked at.
    pub batch: u32,
    /// The batch size that the queue aimed at; the drop rule protects that, or what is behind if it is less.
    pub target: u32,
    /// When a batch of `batch` items would have ended at best.
    pub batch_end: Time,
    /// When it would have ended alone on an idle GPU, of the class that is fastest at it.
    pub alone_end: Time,
    /// Requests in the queue at that moment, itself included if it was let in.
    pub waiting: u32,
    /// What called for it, if it was shed.
    pub shed: Option<ShedCause>,
}

/// Why a request was shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShedCause {
    /// How hard its sub-cluster was pressed.
    pub pressure: Pressure,
    /// What requests of its model are worth.
    pub value: RequestValue,
}
