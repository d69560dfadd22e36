//! The syntax of a problem file (TOML); unknown keys are errors.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProblemText {
    pub(crate) memory_weight: Option<f64>,
    pub(crate) disruption_max: Option<f64>,
    pub(crate) keep_within: Option<f64>,
    pub(crate) gain_min_share: Option<f64>,
    #[serde(default)]
    pub(crate) gpu: Vec<GpuText>,
    #[serde(default)]
    pub(crate) part: Vec<PartText>,
    #[serde(default)]
    pub(crate) model: Vec<ModelText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuText {
    pub(crate) kind: String,
    pub(crate) memory_mb: f64,
    pub(crate) count: Option<u32>,
    pub(crate) names: Option<Vec<String>>,
    pub(crate) part: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartText {
    pub(crate) name: String,
    pub(crate) count: Option<u32>,
    pub(crate) rate_max_rps: Option<f64>,
    pub(crate) share: Option<f64>,
    pub(crate) kinds: Option<Vec<String>>,
    pub(crate) memory_mb: Option<ByKindText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelText {
    pub(crate) name: String,
    pub(crate) count: Option<u32>,
    pub(crate) rate_rps: f64,
    pub(crate) slo_ms: f64,
    pub(crate) alpha_ms: Option<ByKindText>,
    pub(crate) beta_ms: Option<ByKindText>,
    pub(crate) profile: Option<String>,
    pub(crate) profile_csv: Option<String>,
    pub(crate) batch_max: Option<u32>,
    pub(crate) static_mb: ByKindText,
    pub(crate) dynamic_mb: ByKindText,
    pub(crate) move_cost: Option<f64>,
    pub(crate) pin: Option<PinText>,
}

/// One number for all GPU kinds, or one for each.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number, or one for each GPU kind: { kind = x, … }")]
pub(crate) enum ByKindText {
    Same(f64),
    Each(BTreeMap<String, f64>),
}

impl ByKindText {
    pub(crate) fn of(&self, kind: &str) -> Option<f64> {
        match self {
            Self::Same(value) => Some(*value),
            Self::Each(values) => values.get(kind).copied(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected { part = \"name\" } or { kind = \"name\" }")]
pub(crate) enum PinText {
    Part(PinPartText),
    Kind(PinKindText),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PinPartText {
    pub(crate) part: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PinKindText {
    pub(crate) kind: String,
}
