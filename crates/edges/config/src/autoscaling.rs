//! `[scheduler.autoscaling]`: the advice on numbers of GPUs.

/// Limits and damping of the control law (docs/adr/0017).
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
    /// Measurements of so long decide about more GPUs, in seconds.
    pub up_window_s: u64,
    /// GPUs are released by the largest need in so long, in seconds.
    pub down_window_s: u64,
    /// No release for so long after GPUs were asked for, in seconds.
    pub down_after_up_s: u64,
    /// No GPUs are asked for so long after a release, unless requests are lost, in seconds.
    pub up_after_down_s: u64,
    /// From one release to the next, in seconds.
    pub down_period_s: u64,
    /// GPUs that were asked for are counted on for so long, in seconds.
    pub order_stands_s: u64,
    /// One release is at most this share of the GPUs, in per cent, and at least one GPU.
    pub down_step_percent_max: u32,
}

impl AutoscalingConfig {
    /// The times with their keys, in seconds.
    pub(crate) const fn times(&self) -> [(&'static str, u64); 6] {
        [
            ("up_window_s", self.up_window_s),
            ("down_window_s", self.down_window_s),
            ("down_after_up_s", self.down_after_up_s),
            ("up_after_down_s", self.up_after_down_s),
            ("down_period_s", self.down_period_s),
            ("order_stands_s", self.order_stands_s),
        ]
    }
}
