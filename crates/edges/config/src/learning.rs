//! `[scheduler.learning]`: what leads learn from ended batches.

/// Corrected profiles, and quarantined GPUs (docs/adr/0019).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearningConfig {
    /// Whether profiles are corrected by measured execution times.
    pub profiles: bool,
    /// Whether GPUs that are slower than their peers are set aside.
    pub stragglers: bool,
    /// At most this share of a sub-cluster's GPUs of a kind is set aside, in per cent, rounded down.
    pub quarantined_percent_max: u32,
    /// How long a GPU is set aside the first time; each further time twice as long; in seconds.
    pub quarantine_s: u64,
}
