//! The syntax of a pipeline file (TOML); unknown keys are errors.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PipelineText {
    pub(crate) name: Option<String>,
    pub(crate) slo_ms: f64,
    pub(crate) rate_rps: f64,
    pub(crate) step_ms: Option<f64>,
    pub(crate) hop_ms: Option<f64>,
    pub(crate) value: Option<f64>,
    #[serde(default)]
    pub(crate) partial: bool,
    pub(crate) gpu_kind: Option<String>,
    #[serde(default)]
    pub(crate) stage: Vec<StageText>,
    #[serde(default)]
    pub(crate) edge: Vec<EdgeText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StageText {
    pub(crate) name: String,
    pub(crate) model: Option<String>,
    pub(crate) alpha_ms: Option<f64>,
    pub(crate) beta_ms: Option<f64>,
    pub(crate) profile_csv: Option<String>,
    pub(crate) batch_max: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EdgeText {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) gamma: Option<f64>,
    pub(crate) for_each: Option<String>,
    #[serde(rename = "where")]
    pub(crate) condition: Option<String>,
    pub(crate) most: Option<u32>,
}
