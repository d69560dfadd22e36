//! `[scheduler.autoscaling]`: the advice on numbers of GPUs.

/// Limits of the control law (docs/adr/0017).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoscalingConfig {
    /// The fewest GPUs of each kind that a sub-cluster is advised to have.
    pub gpus_min: u32,
    /// The most.
    pub gpus_max: u32,
    /// The share of the GPUs that is kept idle for a rise, in per cent; half of it is the least before GPUs are asked
    /// for.
    pub reserve_percent: u32,
    /// GPUs that were asked for are counted on for so long, in seconds.
    pub order_stands_s: u64,
}
