//! How much a led sub-cluster has to do, by model and by GPU: what plans of the next epoch are made from.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use symphony_types::{GpuId, ModelId};

/// What is counted of a model; only its worker adds to it.
#[derive(Debug, Default)]
pub(crate) struct ModelCounts {
    pub(crate) arrived_items: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) executed: AtomicU64,
    /// Not a count: how many requests wait now.
    pub(crate) queued: AtomicU64,
}

/// What is counted of a GPU; only its link adds to it.
#[derive(Debug, Default)]
pub(crate) struct GpuCounts {
    pub(crate) busy_ns: AtomicU64,
    pub(crate) plans: AtomicU64,
}

/// A model of a led sub-cluster, since it is served there under this lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelLoad {
    /// Items of the requests that came, those left out that a former lead had.
    pub arrived_items: u64,
    /// Requests given up.
    pub dropped: u64,
    /// Requests whose batch ran.
    pub executed: u64,
    /// Requests that wait for a batch now.
    pub queued: u64,
}

/// A GPU of a led sub-cluster, since it is linked under this lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuLoad {
    /// Execution time of its batches, summed, in nanoseconds.
    pub busy_ns: u64,
    /// Batches.
    pub plans: u64,
}

/// What is counted, by whom it is of. Kept for as long as the lead lasts or the model is served.
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
