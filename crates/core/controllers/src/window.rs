//! Measurements of a sub-cluster over a span of time.

use symphony_types::{GpuId, Nanos};

/// Measurements over a span that ends at the time of the observation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Length of the span.
    pub length: Nanos,
    /// Requests answered in time.
    pub good: u64,
    /// Requests dropped, answered late, or failed.
    pub bad: u64,
    /// By GPU kind, in the order of the settings. A missing kind has no GPUs.
    pub kinds: Vec<KindWindow>,
}

/// The GPUs of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindWindow {
    /// GPUs that take plans now, in any order; neither those on order nor draining ones.
    pub serving: Vec<GpuId>,
    /// GPUs that were ordered and have not arrived.
    pub ordered: u32,
    /// Total time in which GPUs of this kind took plans.
    pub gpu_time: Nanos,
    /// The part of it in which they executed.
    pub busy_time: Nanos,
}
