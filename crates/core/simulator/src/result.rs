//! The result of `symphony sim -o json`: names and order of keys are a contract.

use std::collections::BTreeMap;

use serde::Serialize;
use symphony_workload::Scenario;

use crate::goodput::Goodput;
use crate::scaling_trace::ScalingResult;

/// The result of `symphony sim`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulationResult {
    /// The scenario's name.
    pub scenario: String,
    /// The policy, with all options that differ from its defaults.
    pub policy: String,
    /// One run per seed, at the scenario's rate or at the goodput.
    pub runs: Vec<RunResult>,
    /// The goodput in requests per second; `None` if it was not searched for.
    pub goodput_rps: Option<f64>,
    /// Lower tried rates at which a model's p99 misses its SLO, in descending order; `None` without a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_below_rps: Option<Vec<f64>>,
    /// What all GPUs of the scenario cost per hour; `None` if a kind has no price, or if their number follows the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<f64>,
    /// Simulated requests per second of real time. The only number that differs between two runs of the same command.
    pub sim_requests_per_second: f64,
}

impl SimulationResult {
    /// Builds a result. `real_s`: seconds that it took to simulate `requests` requests.
    #[must_use]
    pub fn new(
        scenario: &Scenario,
        runs: Vec<RunResult>,
        goodput: Option<Goodput>,
        requests: u64,
        real_s: f64,
    ) -> Self {
        let (goodput_rps, fails_below_rps) = goodput.map(|found| (found.rate_rps, found.fails_below_rps)).unzip();
        Self {
            scenario: scenario.name.clone(),
            policy: scenario.policy.to_string(),
            runs,
            goodput_rps,
            fails_below_rps,
            price_per_hour: scenario.price_per_hour().filter(|_| scenario.autoscale.is_none()),
            sim_requests_per_second: requests as f64 / real_s.max(1e-9),
        }
    }
}

/// The result of one seed. Requests that arrive in [warm-up, warm-up + duration) count, until each has its outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunResult {
    /// Everything random in the run was drawn from it.
    pub seed: u64,
    /// Requests of clients that arrived, per second; a request of a pipeline is one.
    pub offered_rps: f64,
    /// Requests answered by their deadline, per second.
    pub good_rps: f64,
    /// Share of requests dropped or late; zero if none arrived.
    pub bad_rate: f64,
    /// Mean share of executing GPUs between the warm-up and the end of counting; if their number follows the load, of
    /// the GPUs present.
    pub gpu_utilization: f64,
    /// GPUs that executed at least one batch in that time.
    pub gpus_used: u32,
    /// Mean share of idle GPUs in that time: 1 − `gpu_utilization`. If batches start early it does not show how many
    /// GPUs are spare; the demand does.
    pub idle_fraction: f64,
    /// The GPU time that deferred batches of the load in that time would have taken, over the available GPU time; above
    /// 1 under overload. `None` if the policy does not measure it.
    pub demand_fraction: Option<f64>,
    /// How many requests ran in a batch of each size.
    pub batch_size_by_request: BTreeMap<u32, u64>,
    /// Time from arrival to the start on the GPU.
    pub queueing_ms: Queueing,
    /// Time from arrival to the start as a distribution: milliseconds, and the share of executed requests that waited
    /// at most that long; rising.
    #[serde(skip)]
    pub queueing_cdf: Vec<(f64, f64)>,
    /// Per model, in the order of the scenario; of a model that stages ask, their requests included.
    pub models: Vec<ModelResult>,
    /// Per pipeline, in the order of the scenario.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pipelines: Vec<PipelineResult>,
    /// The number of GPUs, if it followed the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscale: Option<ScalingResult>,
    /// What the run learnt, if learning was on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning: Option<LearningResult>,
    /// Simulated requests, including those outside the counted time.
    #[serde(skip)]
    pub simulated_requests: u64,
}

/// What was learnt in the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LearningResult {
    /// How often a GPU was set aside.
    pub quarantines: u64,
    /// Profiles that were corrected.
    pub profiles_corrected: u64,
}

/// Queueing delays of executed requests in milliseconds; `None` if none was executed. Quantiles are within 0.5 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Queueing {
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Largest, exact.
    pub max: Option<f64>,
    /// Mean, exact; for comparison with queueing theory.
    #[serde(skip)]
    pub mean: Option<f64>,
}

/// What became of the counted requests for one model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelResult {
    /// Name of the model in the scenario.
    pub name: String,
    /// Requests that arrived.
    pub offered: u64,
    /// Answered by their deadline.
    pub good: u64,
    /// Answered later.
    pub late: u64,
    /// Never answered.
    pub dropped: u64,
    /// Of them, those that were shed.
    pub shed: u64,
    /// Stage requests that a pipeline no longer needed while they waited.
    #[serde(skip_serializing_if = "is_zero")]
    pub withdrawn: u64,
    /// Median of the time from arrival to answer in milliseconds, dropped requests as infinite. `None` where infinite
    /// or nothing arrived. Within 0.5 %, and never on the wrong side of the SLO.
    pub p50_ms: Option<f64>,
    /// The 99th percentile of that time: goodput asks for `p99_ms` ≤ SLO.
    pub p99_ms: Option<f64>,
    /// Mean size of the batches that its counted requests ran in; `None` without any.
    pub mean_batch: Option<f64>,
}

/// serde passes a reference.
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The result of one pipeline. Latencies are as those of models.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipelineResult {
    /// Name of the pipeline in the scenario.
    pub name: String,
    /// Requests that arrived.
    pub offered: u64,
    /// Answered by their deadline.
    pub good: u64,
    /// Of them, those of a `partial` pipeline that lack what lost stage requests would have led to.
    #[serde(skip_serializing_if = "is_zero")]
    pub incomplete: u64,
    /// Answered later.
    pub late: u64,
    /// Never answered.
    pub dropped: u64,
    /// Median of the time from arrival to answer in milliseconds.
    pub p50_ms: Option<f64>,
    /// The 99th percentile of that time: goodput asks for `p99_ms` ≤ SLO.
    pub p99_ms: Option<f64>,
}
