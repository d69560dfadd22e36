//! Models, requests and batches as they are on tapes.

use symphony_scheduler::ClusterModel;
use symphony_types::{Nanos, RequestValue, Time};

/// What became of a request, as far as its lead knew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordedOutcome {
    /// The tapes do not say: it waited or ran when they ended, or went to another lead.
    #[default]
    Unknown,
    /// Its batch ended; the time from its arrival until the lead learnt of its end. Whether its execution failed is not
    /// on tapes.
    Ran(Nanos),
    /// It was given up.
    Dropped,
    /// Its client withdrew it.
    Cancelled,
}

/// A batch that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedBatch {
    /// When it began, by the clock of the lead.
    pub start: Time,
    /// For how long the GPU ran it.
    pub took: Nanos,
}

/// A request that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// When, by the clock of the lead.
    pub at: Time,
    /// From then to its deadline.
    pub slo: Nanos,
    /// Its items, at least one.
    pub items: u32,
    /// Its value, which decides who sheds.
    pub weight: RequestValue,
    /// What became of it.
    pub outcome: RecordedOutcome,
}

/// A model as it was recorded last, and its requests.
#[derive(Clone, Debug)]
pub struct RecordedModel {
    /// The name under which it was loaded.
    pub name: String,
    /// Its SLO, with the last profiles and delays. What lateness was measured is not in them.
    pub known: ClusterModel,
    /// Requests in the order of time. A request that was announced again is counted once.
    pub requests: Vec<RecordedRequest>,
    /// The batches that ran, in the order of their ends.
    pub batches: Vec<RecordedBatch>,
}
