//! The syntax of a file of sessions (TOML); unknown keys are errors.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileText {
    #[serde(default)]
    pub(super) session: Vec<SessionText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionText {
    pub(super) name: String,
    pub(super) slo_ms: f64,
    pub(super) rate_rps: f64,
    pub(super) profile_csv: Option<String>,
    pub(super) alpha_ms: Option<f64>,
    pub(super) beta_ms: Option<f64>,
    pub(super) batch_max: Option<u32>,
}
