//! The load of a led sub-cluster, by model and by GPU: the input of the next partition plan.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use symphony_types::{GpuId, ModelId};

/// Counts of a model; written by its worker only.
#[derive(Debug, Default)]
pub(crate) struct ModelCounts {
    pub(crate) arrived_items: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) executed: AtomicU64,
    /// A gauge: how many requests wait now.
    pub(crate) queued: AtomicU64,
}

/// Counts of a GPU; written by its link only.
#[derive(Debug, Default)]
pub(crate) struct GpuCounts {
    pub(crate) busy_ns: AtomicU64,
    pub(crate) plans: AtomicU64,
}

/// The load of a model since this lead began to serve it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelLoad {
    /// Items of the requests that arrived, without those that a former lead had already.
    pub arrived_items: u64,
    /// Requests dropped.
    pub dropped: u64,
    /// Requests whose batch ran.
    pub executed: u64,
    /// Requests that wait for a batch now.
    pub queued: u64,
}

/// The load of a GPU since this lead linked it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuLoad {
    /// Sum of execution times of its batches, in nanoseconds.
    pub busy_ns: u64,
    /// Batches run.
    pub plans: u64,
}

/// Counts by model and GPU, kept until the lead ends or the model leaves.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    models: RwLock<BTreeMap<ModelId, Arc<ModelCounts>>>,
    gpus: RwLock<BTreeMap<GpuId, Arc<GpuCounts>>>,
}

impl Loads {
    pub(crate) fn of_model(&self, model: ModelId) -> Arc<ModelCounts> {
        Arc::clone(self.models.write().unwrap_or_else(PoisonError::into_inner).entry(model).or_default())
    }

    pub(crate) fn of_gpu(&self, gpu: GpuId) -> Arc<GpuCounts> {
        Arc::clone(self.gpus.write().unwrap_or_else(PoisonError::into_inner).entry(gpu).or_default())
    }

    pub(crate) fn forget(&self, model: ModelId) {
        self.models.write().unwrap_or_else(PoisonError::into_inner).remove(&model);
    }

    pub(crate) fn models(&self) -> BTreeMap<ModelId, ModelLoad> {
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
        let read = |counts: &ModelCounts| ModelLoad {
            arrived_items: counts.arrived_items.load(Ordering::Relaxed),
            dropped: counts.dropped.load(Ordering::Relaxed),
            executed: counts.executed.load(Ordering::Relaxed),
            queued: counts.queued.load(Ordering::Relaxed),
        };
        models.iter().map(|(&id, counts)| (id, read(counts))).collect()
    }

    pub(crate) fn gpus(&self) -> BTreeMap<GpuId, GpuLoad> {
        let gpus = self.gpus.read().unwrap_or_else(PoisonError::into_inner);
        let read = |counts: &GpuCounts| GpuLoad {
            busy_ns: counts.busy_ns.load(Ordering::Relaxed),
            plans: counts.plans.load(Ordering::Relaxed),
        };
        gpus.iter().map(|(&id, counts)| (id, read(counts))).collect()
    }
}
