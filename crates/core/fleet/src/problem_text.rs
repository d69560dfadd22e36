//! The syntax of a fleet problem (TOML); unknown keys are errors.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FleetText {
    pub(crate) budget_per_hour: f64,
    pub(crate) kind: Vec<KindText>,
    // Of the only model, for problems without `model`.
    pub(crate) slo_ms: Option<f64>,
    pub(crate) items: Option<ItemsText>,
    pub(crate) items_csv: Option<String>,
    pub(crate) latency_csv: Option<String>,
    #[serde(default)]
    pub(crate) model: Vec<ModelText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KindText {
    pub(crate) name: String,
    pub(crate) price_per_hour: f64,
    pub(crate) count_max: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelText {
    pub(crate) name: String,
    pub(crate) share: Option<f64>,
    pub(crate) slo_ms: Option<f64>,
    pub(crate) items: Option<ItemsText>,
    pub(crate) items_csv: Option<String>,
    pub(crate) latency_csv: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number, { lognormal = { mean, sigma } } or { gaussian = { mean, sigma } }; a histogram \
                 comes by items_csv"
)]
pub(crate) enum ItemsText {
    Fixed(u32),
    Lognormal(LognormalText),
    Gaussian(GaussianText),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LognormalText {
    pub(crate) lognormal: SpreadText,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GaussianText {
    pub(crate) gaussian: SpreadText,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpreadText {
    pub(crate) mean: f64,
    pub(crate) sigma: f64,
}
