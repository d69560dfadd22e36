//! What was measured of a sub-cluster in one span of time.

use symphony_types::{GpuId, Nanos};

/// Measurements of a span that ends at the time of the observation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// How long it was.
    pub length: Nanos,
    /// Requests that were answered in time.
    pub good: u64,
    /// Requests that were dropped, answered late, or failed.
    pub bad: u64,
    /// By GPU kind, in the order of the settings. A kind that is missing has no GPUs.
    pub kinds: Vec<KindWindow>,
}

/// The GPUs of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindWindow {
    /// GPUs that take plans now, in any order. Neither those on order nor those that drain.
    pub serving: Vec<GpuId>,
    /// GPUs that were asked for and are not here yet.
    pub ordered: u32,
    /// The time that GPUs of this kind took plans in the span, summed up.
    pub gpu_time: Nanos,
    /// The part of it in which they executed.
    pub busy_time: Nanos,
}
