//! `[scheduler.learning]`: what leads learn from ended batches.

/// Corrected profiles, and quarantined GPUs (docs/adr/0019).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearningConfig {
    /// Whether profiles are corrected by measured execution times.
    pub profiles: bool,
    /// A profile is corrected when it is off by this many per cent at some batch size.
    pub profile_change_percent_min: u32,
    /// And not more often than this, in seconds.
    pub profile_period_s: u64,
    /// Whether GPUs that are slower than their peers are set aside.
    pub stragglers: bool,
    /// A GPU that takes this many per cent longer than its peers is too slow.
    pub slow_percent: u32,
    /// At most this share of a sub-cluster's GPUs of a kind is set aside, in per cent, rounded down.
    pub quarantined_percent_max: u32,
    /// How long a GPU is set aside the first time; each further time twice as long; in seconds.
    pub quarantine_s: u64,
    /// And at most so long, in seconds.
    pub quarantine_s_max: u64,
    /// Batches that a GPU must run like its peers after that.
    pub trial_batches: u32,
}
