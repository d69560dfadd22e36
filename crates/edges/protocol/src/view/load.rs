//! The load of a lead, by model and by GPU.

use std::collections::BTreeMap;

use symphony_types::{GpuId, ModelId, Nanos, Token};

/// The load of a lead since it began, by its last report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadView {
    /// The lead: under another token everything is counted anew.
    pub token: Token,
    /// How long ago the report came.
    pub age: Nanos,
    /// By model.
    pub models: BTreeMap<ModelId, ModelLoadView>,
    /// By GPU.
    pub gpus: BTreeMap<GpuId, GpuLoadView>,
    /// GPU time that deferred batches of all that was asked would have taken; none if the lead does not measure it.
    pub demand: Option<Nanos>,
}

/// What a lead has counted of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelLoadView {
    /// Items of the requests that came.
    pub arrived_items: u64,
    /// Requests that were given up.
    pub dropped: u64,
    /// Requests whose batch ran.
    pub executed: u64,
    /// Of these: which got no result.
    pub failed: u64,
    /// Requests that waited for a batch when it was reported.
    pub queued: u64,
}

/// What a lead has counted of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuLoadView {
    /// Execution time of its batches, summed.
    pub busy: Nanos,
    /// Batches.
    pub plans: u64,
}
