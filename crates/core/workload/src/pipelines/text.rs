//! The syntax of `[[pipeline]]`: stages and edges as in a pipeline file, and what only a simulation needs. The keys
//! stand here once more, since a struct that takes in another one's keys cannot refuse unknown ones; what the words of
//! an edge mean is said once, by [`EdgeKeys`](symphony_pipeline::EdgeKeys).

use serde::Deserialize;

use super::fan_out::FanOutLaw;
use super::pipeline_load::SplitRule;
use crate::by_kind_text::ByKindText;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PipelineText {
    pub(crate) name: Option<String>,
    pub(crate) slo_ms: f64,
    pub(crate) weight: Option<f64>,
    pub(crate) value: Option<f64>,
    #[serde(default)]
    pub(crate) partial: bool,
    #[serde(default)]
    pub(crate) split: SplitRule,
    #[serde(default = "default_resplit")]
    pub(crate) resplit: bool,
    pub(crate) hop_ms: Option<f64>,
    pub(crate) rate_profile: Option<Vec<[f64; 2]>>,
    #[serde(default)]
    pub(crate) stage: Vec<StageText>,
    #[serde(default)]
    pub(crate) edge: Vec<EdgeText>,
}

fn default_resplit() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StageText {
    pub(crate) name: String,
    pub(crate) model: Option<String>,
    pub(crate) alpha_ms: Option<ByKindText>,
    pub(crate) beta_ms: Option<ByKindText>,
    pub(crate) profile: Option<String>,
    pub(crate) profile_csv: Option<String>,
    pub(crate) batch_max: Option<u32>,
    pub(crate) pre_ms: Option<f64>,
    pub(crate) post_ms: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EdgeText {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) gamma: Option<f64>,
    pub(crate) gamma_profile: Option<Vec<[f64; 2]>>,
    #[serde(default)]
    pub(crate) fan_out: FanOutLaw,
    pub(crate) for_each: Option<String>,
    #[serde(rename = "where")]
    pub(crate) condition: Option<String>,
    pub(crate) most: Option<u32>,
}
