//! The syntax of a scenario: the TOML contract, key by key. Unknown keys are errors.

use std::collections::BTreeMap;

use serde::Deserialize;
use symphony_policy::{AutoRule, PolicyText};

use crate::by_kind_text::ByKindText;
use crate::pipelines::PipelineText;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScenarioText {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) policy: PolicyText,
    #[serde(default)]
    pub(crate) consolidate: bool,
    #[serde(default)]
    pub(crate) without: Vec<AutoRule>,
    #[serde(default = "default_duration_s")]
    pub(crate) duration_s: f64,
    #[serde(default = "default_warmup_s")]
    pub(crate) warmup_s: f64,
    #[serde(default = "default_seeds")]
    pub(crate) seeds: Vec<u64>,
    #[serde(default)]
    pub(crate) network: NetworkText,
    #[serde(default)]
    pub(crate) execution: ExecutionText,
    #[serde(default)]
    pub(crate) failure: Vec<FailureText>,
    #[serde(default)]
    pub(crate) slow: Vec<SlowText>,
    pub(crate) learning: Option<LearningText>,
    pub(crate) autoscale: Option<AutoscaleText>,
    pub(crate) gpu: Vec<GpuText>,
    #[serde(default)]
    pub(crate) profiles: ProfilesText,
    #[serde(default)]
    pub(crate) model: Vec<ModelText>,
    #[serde(default)]
    pub(crate) pipeline: Vec<PipelineText>,
    pub(crate) split_epoch_s: Option<f64>,
    pub(crate) workload: WorkloadText,
}

fn default_duration_s() -> f64 {
    30.0
}

fn default_warmup_s() -> f64 {
    2.0
}

fn default_seeds() -> Vec<u64> {
    vec![1, 2, 3]
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlowText {
    pub(crate) gpu: u32,
    pub(crate) factor: f64,
    pub(crate) at_s: f64,
    pub(crate) for_s: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LearningText {
    pub(crate) profiles: Option<bool>,
    pub(crate) profile_period_s: Option<f64>,
    pub(crate) stragglers: Option<bool>,
    pub(crate) slow_percent: Option<f64>,
    pub(crate) quarantined_percent_max: Option<f64>,
    pub(crate) quarantine_s: Option<f64>,
    pub(crate) trial_batches: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NetworkText {
    pub(crate) ctrl_us: f64,
    pub(crate) data_us_per_item: f64,
    pub(crate) reply_us: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecutionText {
    pub(crate) noise: Option<NoiseText>,
    pub(crate) spike: Option<SpikeText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoiseText {
    pub(crate) lognormal_sigma: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpikeText {
    pub(crate) probability: f64,
    pub(crate) factor: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailureText {
    pub(crate) gpu: u32,
    pub(crate) at_s: f64,
    pub(crate) for_s: Option<f64>,
}

/// Which profile counts for a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProfilesText {
    #[default]
    OwnKind,
    SlowestKind,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuText {
    pub(crate) kind: String,
    pub(crate) count: u32,
    pub(crate) start: Option<u32>,
    pub(crate) min: Option<u32>,
    pub(crate) memory_mb: Option<f64>,
    pub(crate) price_per_hour: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AutoscaleText {
    pub(crate) provision_s: Option<f64>,
    pub(crate) period_s: Option<f64>,
    pub(crate) bad_rate_max: Option<f64>,
    pub(crate) reserve: Option<f64>,
    pub(crate) reserve_min: Option<f64>,
    pub(crate) release_band: Option<f64>,
    pub(crate) up_window_s: Option<f64>,
    pub(crate) down_window_s: Option<f64>,
    pub(crate) down_after_up_s: Option<f64>,
    pub(crate) up_after_down_s: Option<f64>,
    pub(crate) up_step_max: Option<f64>,
    pub(crate) down_step_max: Option<f64>,
    pub(crate) down_period_s: Option<f64>,
    pub(crate) budget_per_hour: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelText {
    pub(crate) name: String,
    pub(crate) count: Option<u32>,
    pub(crate) alpha_ms: Option<ByKindText>,
    pub(crate) beta_ms: Option<ByKindText>,
    pub(crate) profile: Option<String>,
    pub(crate) profile_csv: Option<String>,
    pub(crate) batch_max: Option<u32>,
    pub(crate) slo_ms: f64,
    pub(crate) deadline: Option<DeadlineText>,
    pub(crate) items: Option<ItemsText>,
    pub(crate) weight: Option<f64>,
    pub(crate) value: Option<f64>,
    pub(crate) rate_profile: Option<Vec<[f64; 2]>>,
    pub(crate) variants: Option<VariantsText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VariantsText {
    pub(crate) count: u32,
    pub(crate) suffix_alpha_ms: ByKindText,
    pub(crate) suffix_beta_ms: ByKindText,
    pub(crate) popularity: Option<PopularityText>,
    #[serde(default = "default_shared")]
    pub(crate) shared: bool,
}

fn default_shared() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected { uniform_ms = [least, most] } or a list of { share, slo_ms }")]
pub(crate) enum DeadlineText {
    Uniform(UniformMs),
    Shares(Vec<DeadlineShare>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UniformMs {
    pub(crate) uniform_ms: [f64; 2],
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadlineShare {
    pub(crate) share: f64,
    pub(crate) slo_ms: f64,
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number, { uniform = [least, most] }, { lognormal = { mean, sigma } }, \
                 { gaussian = { mean, sigma } }, { csv = \"file\" }, or a list of { share, items }"
)]
pub(crate) enum ItemsText {
    Fixed(u32),
    Uniform(UniformItems),
    Lognormal(LognormalItems),
    Gaussian(GaussianItems),
    Csv(CsvItems),
    Shares(Vec<ItemsShare>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LognormalItems {
    pub(crate) lognormal: SpreadText,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GaussianItems {
    pub(crate) gaussian: SpreadText,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpreadText {
    pub(crate) mean: f64,
    pub(crate) sigma: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CsvItems {
    pub(crate) csv: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UniformItems {
    pub(crate) uniform: [u32; 2],
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ItemsShare {
    pub(crate) share: f64,
    pub(crate) items: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkloadText {
    pub(crate) rate_rps: Option<f64>,
    pub(crate) arrival: ArrivalText,
    #[serde(default)]
    pub(crate) popularity: PopularityText,
    pub(crate) rate_profile: Option<Vec<[f64; 2]>>,
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected \"poisson\", \"uniform\", { gamma = shape } or { trace_csv = \"file\", time_scale = x, \
                 map = { name = \"model\" } }"
)]
pub(crate) enum ArrivalText {
    Name(String),
    Gamma(GammaTable),
    Trace(TraceTable),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GammaTable {
    pub(crate) gamma: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TraceTable {
    pub(crate) trace_csv: String,
    pub(crate) time_scale: Option<f64>,
    #[serde(default)]
    pub(crate) map: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected \"weights\", \"uniform\" or { zipf = s }")]
pub(crate) enum PopularityText {
    Name(String),
    Zipf(ZipfTable),
}

impl Default for PopularityText {
    fn default() -> Self {
        Self::Name("weights".to_owned())
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ZipfTable {
    pub(crate) zipf: f64,
}
