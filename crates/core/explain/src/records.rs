//! What is remembered of a decision.

use symphony_scheduler::{DropCause, Plan, Request};
use symphony_types::{DropReason, Nanos, Time};

/// A batch plan, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRecord {
    /// The host's number of its model.
    pub model: u32,
    /// When it was decided.
    pub decided: Time,
    /// The plan; what it says of its requests' places is the host's and not looked at here.
    pub plan: Plan,
    /// How it ended.
    pub end: BatchEnd,
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchEnd {
    /// Nothing was heard of it yet.
    Running,
    /// It ran.
    Done {
        /// By how much it started later than planned.
        start_late: Nanos,
        /// How long it took.
        latency: Nanos,
    },
    /// The backend did not accept it: its requests waited again.
    Refused,
    /// It was lost with its GPU, or stopped: its requests waited again.
    Lost,
}

/// A request that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropRecord {
    /// The host's number of its model.
    pub model: u32,
    /// When it was decided.
    pub decided: Time,
    /// The request.
    pub request: Request,
    /// Why.
    pub reason: DropReason,
    /// What made it so; none from policies that do not say.
    pub cause: Option<DropCause>,
    /// No GPU of the lead served then: its owner hears of that instead.
    pub lost: bool,
}
