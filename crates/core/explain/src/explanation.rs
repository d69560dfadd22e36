//! Explanations in machine-readable form. Times are milliseconds relative to the decision; negative before it.

use serde::Serialize;

/// The decision on a request or batch, its reason, and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The request; `None` for an explanation of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The request's items; `None` for an explanation of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<u32>,
    /// Name of the model, as the host calls it.
    pub model: String,
    /// Its present policy, as operators write it; if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// `in_time`, `late`, `running`, `refused`, `lost` or `dropped`, as the scheduler knows it: without the way back to
    /// the client.
    pub outcome: &'static str,
    /// Age of the decision; in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_ago_ms: Option<f64>,
    /// Virtual time of the decision; in a simulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at_s: Option<f64>,
    /// The batch that it was planned in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchStory>,
    /// Why it was dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<DropStory>,
}

/// A batch: why it was formed so, and how it went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BatchStory {
    /// Its number, in the order of its model worker.
    pub number: u64,
    /// Items of all its requests.
    pub items: u32,
    /// Its number of requests.
    pub requests: u32,
    /// The target batch; `None` if the policy does not report it.
    pub target: Option<u32>,
    /// More urgent requests that were skipped: GPUs of this kind could not serve them usefully, but faster ones may.
    pub skipped: Option<u32>,
    /// Requests left in the queue, including those.
    pub left: Option<u32>,
    /// How long its most urgent request had waited.
    pub head_waited_ms: Option<f64>,
    /// Its window and start.
    pub window: Window,
    /// The GPU, and why that one.
    pub gpu: GpuStory,
    /// The rule of a policy that does not explain single decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<&'static str>,
    /// Competing candidates.
    pub rivals: Option<RivalStory>,
    /// The planned input delay; `None` if the policy does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs: Option<InputsStory>,
    /// The planned times.
    pub planned: Planned,
    /// The measured times; `None` until reported.
    pub actual: Option<Actual>,
    /// The deadline of the request in question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<f64>,
    /// All requests of the batch; empty if they are no longer recorded.
    pub members: Vec<String>,
}

/// The window of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Window {
    /// Frontrun: from here on no further request could join; `None` if none ever could, or if the policy does not
    /// report it.
    pub frontrun_ms: Option<f64>,
    /// How long before frontrun the batch was due, to allow for late timers; `None` if the policy does not report it.
    pub guard_ms: Option<f64>,
    /// Latest: from here on its most urgent request would be late.
    pub latest_ms: f64,
}

/// Half a nanosecond, in milliseconds: rounding differences of the same moment are smaller.
const SAME_MOMENT_MS: f64 = 5e-7;

impl Window {
    /// When a trigger that waits for the window wants the batch to start.
    pub(crate) fn due_ms(&self) -> Option<f64> {
        self.frontrun_ms.map(|frontrun| frontrun - self.guard_ms.unwrap_or_default() - SAME_MOMENT_MS)
    }
}

/// Why a batch got its GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuStory {
    /// The GPU.
    pub name: String,
    /// Its kind; `None` if no longer known.
    pub kind: Option<String>,
    /// `at_its_start`, `first_in_line` or `untold`.
    pub matched: &'static str,
    /// `lowest_id` or `earliest_free`.
    pub choice: &'static str,
    /// Other GPUs that were free by the same start.
    pub others_idle: u8,
    /// Whether there may have been more: the count has a limit.
    pub others_idle_or_more: bool,
}

/// Candidates of other models in the ready set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RivalStory {
    /// Their number.
    pub count: u32,
    /// Name of the model of the next one.
    pub next_model: Option<String>,
    /// When its window ends.
    pub next_latest_ms: Option<f64>,
}

/// The planned input delay of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct InputsStory {
    /// The delay.
    pub within_ms: f64,
    /// Its origin: `measured`, `assumed` before the first measurement, or `configured`.
    pub by: &'static str,
}

/// The planned times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Planned {
    /// Start on the GPU.
    pub start_ms: f64,
    /// Execution time.
    pub execution_ms: f64,
    /// End on the GPU.
    pub end_ms: f64,
    /// The time by which it had to end: the earliest deadline − reply delay.
    pub must_end_by_ms: f64,
}

/// The measured times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Actual {
    /// How much later than planned it started; negative if earlier.
    pub start_late_ms: f64,
    /// Whether it may have started, and ended, sooner: backends report how late batches began, and not how early.
    pub at_latest: bool,
    /// Execution time.
    pub execution_ms: f64,
    /// End on the GPU.
    pub end_ms: f64,
}

/// Why a request was dropped, in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DropStory {
    /// `slo_unreachable`, `protect_batch`, `queue_expired`, `queue_full` or `shed`; `no_gpu` if no GPU served the
    /// model.
    pub reason: &'static str,
    /// The rule of a policy that does not explain single decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<&'static str>,
    /// Deadline of the request.
    pub deadline_ms: f64,
    /// How long it had waited. This and the following fields are `None` if the policy does not report them.
    pub waited_ms: Option<f64>,
    /// The time by which it had to end on a GPU: deadline − reply delay.
    pub must_end_by_ms: Option<f64>,
    /// The smallest batch that it could have joined, the one worth protecting; `None` if no batch was considered.
    pub batch: Option<u32>,
    /// The GPU kind on which that batch would have ended first.
    pub kind: Option<String>,
    /// The target batch.
    pub target: Option<u32>,
    /// The earliest end of that batch.
    pub batch_end_ms: Option<f64>,
    /// When it would have ended alone on an idle GPU of the fastest kind.
    pub alone_end_ms: Option<f64>,
    /// Requests in the queue at that moment.
    pub waiting: Option<u32>,
    /// Why it was shed, if so.
    pub shed: Option<ShedStory>,
}

/// Why a request was shed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ShedStory {
    /// The pressure on its sub-cluster: the share that models of value 1 shed.
    pub pressure: f64,
    /// The value of its model's requests.
    pub value: f64,
    /// The share that its model shed.
    pub share: f64,
}
