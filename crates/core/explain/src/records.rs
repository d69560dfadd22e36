//! Records of decisions.

use symphony_scheduler::{DropCause, Plan, Request};
use symphony_types::{DropReason, Nanos, Time};

/// A batch plan and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRecord {
    /// The host's number of its model.
    pub model: u32,
    /// The time of the decision.
    pub decided: Time,
    /// The plan; the positions of its requests are the host's and not used here.
    pub plan: Plan,
    /// Its outcome.
    pub end: BatchEnd,
}

/// The outcome of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchEnd {
    /// Not reported yet.
    Running,
    /// Executed.
    Done {
        /// When it started.
        start: Time,
        /// Whether it may have started, and ended, sooner: backends report how late batches began, and not how early.
        at_latest: bool,
        /// Execution time.
        latency: Nanos,
    },
    /// The backend refused it: its requests waited again.
    Refused,
    /// Lost with its GPU, or stopped: its requests waited again.
    Lost,
}

/// A request that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropRecord {
    /// The host's number of its model.
    pub model: u32,
    /// The time of the decision.
    pub decided: Time,
    /// The request, as it arrived.
    pub request: Request,
    /// The stable label of the drop that clients and metrics see.
    pub reason: DropReason,
    /// The cause; `None` if the policy does not report it.
    pub cause: Option<DropCause>,
    /// No GPU of the lead served the model; the frontend gets this reason instead.
    pub lost: bool,
}
