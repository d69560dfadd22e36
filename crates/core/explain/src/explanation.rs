//! An explanation, as programs read it. Times are milliseconds from the decision on, negative before it.

use serde::Serialize;

/// What was decided about one request (or one batch), why, and how it turned out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The request; none if a batch was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Items in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<u32>,
    /// The model.
    pub model: String,
    /// How it is scheduled now, as operators write it; if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// `in_time`, `late`, `running`, `refused`, `lost` or `dropped`, as far as the scheduler knows: the way back to the
    /// client is not in it.
    pub outcome: &'static str,
    /// How long ago it was decided; in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_ago_ms: Option<f64>,
    /// The virtual time of the decision; in a simulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at_s: Option<f64>,
    /// The batch that it was planned in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchStory>,
    /// Why it was dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<DropStory>,
}

/// A batch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BatchStory {
    /// Its number: counts the batches of its model thread.
    pub number: u64,
    /// Items in it.
    pub items: u32,
    /// Requests in it.
    pub requests: u32,
    /// The batch size that the queue aimed at; none from policies that do not say.
    pub target: Option<u32>,
    /// More urgent requests that were passed over: GPUs of this kind could not serve them usefully, faster ones may.
    pub skipped: Option<u32>,
    /// Requests that were left in the queue, those included.
    pub left: Option<u32>,
    /// How long its most urgent request had waited.
    pub head_waited_ms: Option<f64>,
    /// When it should start.
    pub window: Window,
    /// Where, and why there.
    pub gpu: GpuStory,
    /// The rule of a policy that says no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<&'static str>,
    /// Who else wanted a GPU.
    pub rivals: Option<RivalStory>,
    /// How long its inputs were given; none from policies that do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs: Option<InputsStory>,
    /// What was planned.
    pub planned: Planned,
    /// How it went; none while nothing was heard.
    pub actual: Option<Actual>,
    /// The deadline of the request that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<f64>,
    /// All requests of the batch; empty if they are forgotten.
    pub members: Vec<String>,
}

/// When a batch should start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Window {
    /// From here on no further arrival could join; none if nothing could from the beginning, or the policy does not
    /// say.
    pub frontrun_ms: Option<f64>,
    /// How long before frontrun the batch was due, for timers ring late; none if the policy does not say.
    pub guard_ms: Option<f64>,
    /// From here on its most urgent request is late.
    pub latest_ms: f64,
}

/// Half a nanosecond, in milliseconds: two ways to compute the same moment differ by less.
const SAME_MOMENT_MS: f64 = 5e-7;

impl Window {
    /// From when on a trigger that waits for the window wants the batch to start.
    pub(crate) fn due_ms(&self) -> Option<f64> {
        self.frontrun_ms.map(|frontrun| frontrun - self.guard_ms.unwrap_or_default() - SAME_MOMENT_MS)
    }
}

/// Why a GPU was given to a batch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuStory {
    /// Which.
    pub name: String,
    /// Of which kind; none if that is not known any more.
    pub kind: Option<String>,
    /// `at_its_start`, `first_in_line` or `untold`.
    pub matched: &'static str,
    /// `lowest_id` or `earliest_free`.
    pub choice: &'static str,
    /// Other GPUs free by the same start.
    pub others_idle: u8,
    /// Whether there may have been more: they are not counted on.
    pub others_idle_or_more: bool,
}

/// Candidates of other models that were due and waited for a GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RivalStory {
    /// How many.
    pub count: u32,
    /// The model of the one that was next.
    pub next_model: Option<String>,
    /// When its window ends.
    pub next_latest_ms: Option<f64>,
}

/// How long the inputs of a batch were given to come to its backend.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct InputsStory {
    /// So long.
    pub within_ms: f64,
    /// `measured`, `assumed` before anything was, or `configured`.
    pub by: &'static str,
}

/// What was planned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Planned {
    /// When the GPU should start.
    pub start_ms: f64,
    /// How long it should take.
    pub execution_ms: f64,
    /// When it should end.
    pub end_ms: f64,
    /// By when it had to end: the earliest deadline in it, less what the reply takes.
    pub must_end_by_ms: f64,
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Actual {
    /// By how much it started later than planned.
    pub start_late_ms: f64,
    /// How long it took.
    pub execution_ms: f64,
    /// When it ended.
    pub end_ms: f64,
}

/// Why a request was dropped, in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DropStory {
    /// `slo_unreachable`, `protect_batch`, `queue_expired`, `queue_full` or `shed`; `no_gpu` where no GPU served.
    pub reason: &'static str,
    /// The rule of a policy that says no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<&'static str>,
    /// Its deadline.
    pub deadline_ms: f64,
    /// How long it had waited; this and what follows is none from policies that do not say.
    pub waited_ms: Option<f64>,
    /// By when it had to end on a GPU: its deadline less what the reply takes.
    pub must_end_by_ms: Option<f64>,
    /// The smallest batch that it could have been part of: what was worth protecting; none if no batch was looked at.
    pub batch: Option<u32>,
    /// The kind of GPUs on which such a batch would have ended first.
    pub kind: Option<String>,
    /// The batch size that the queue aimed at.
    pub target: Option<u32>,
    /// When such a batch would have ended at best.
    pub batch_end_ms: Option<f64>,
    /// When it would have ended alone, on an idle GPU of the kind that is fastest at it.
    pub alone_end_ms: Option<f64>,
    /// Requests in the queue at that moment.
    pub waiting: Option<u32>,
    /// What called for it, if it was shed.
    pub shed: Option<ShedStory>,
}

/// Why a request was shed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ShedStory {
    /// How hard its sub-cluster was pressed: the share that models of value 1 gave up.
    pub pressure: f64,
    /// What requests of its model are worth.
    pub value: f64,
    /// The share that its model gave up.
    pub share: f64,
}
