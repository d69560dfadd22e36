//! The load of a led sub-cluster, by model and by GPU: the input of the next partition plan.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use symphony_telemetry::buckets::{BATCH_ITEMS, SHARES};
use symphony_telemetry::{ValueCounts, ValueHistogram};
use symphony_types::{GpuId, ModelId, Time};

/// Counts of a model; written by its worker only.
#[derive(Debug)]
pub(crate) struct ModelCounts {
    pub(crate) arrived_items: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) executed: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) late: AtomicU64,
    /// A gauge: how many requests wait now.
    pub(crate) queued: AtomicU64,
    /// Items of its batches.
    pub(crate) batch_items: ValueHistogram,
    /// How much of its window each had used when it started, in thousandths.
    pub(crate) window_used: ValueHistogram,
}

impl Default for ModelCounts {
    fn default() -> Self {
        Self {
            arrived_items: AtomicU64::default(),
            dropped: AtomicU64::default(),
            executed: AtomicU64::default(),
            failed: AtomicU64::default(),
            late: AtomicU64::default(),
            queued: AtomicU64::default(),
            batch_items: ValueHistogram::new(&BATCH_ITEMS),
            window_used: ValueHistogram::new(&SHARES),
        }
    }
}

/// How much of the window from `frontrun` to `latest` is used at `start`, in thousandths: 0 before it or at its begin,
/// 1000 at its end. Of a window without length all or nothing is used.
pub(crate) fn window_used(start: Time, frontrun: Time, latest: Time) -> u64 {
    let (used, length) = (start.since(frontrun).get(), latest.since(frontrun).get());
    match length {
        0 => u64::from(start >= latest && start > frontrun) * 1000,
        length => (u128::from(used.min(length)) * 1000 / u128::from(length)) as u64,
    }
}

/// The distributions of a model's batches since this lead began to serve it.
#[derive(Clone, Debug)]
pub struct ModelBatches {
    /// Requests that wait for a batch now.
    pub queued: u64,
    /// Items of its batches.
    pub batch_items: ValueCounts,
    /// How much of its window each had used when it started, in thousandths.
    pub window_used: ValueCounts,
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
    /// Of these: requests that got no result.
    pub failed: u64,
    /// Of these: requests whose deadlines had passed when their batch had ended.
    pub late: u64,
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
            failed: counts.failed.load(Ordering::Relaxed),
            late: counts.late.load(Ordering::Relaxed),
            queued: counts.queued.load(Ordering::Relaxed),
        };
        models.iter().map(|(&id, counts)| (id, read(counts))).collect()
    }

    pub(crate) fn batches(&self) -> Vec<(ModelId, ModelBatches)> {
        // Decision threads wait for this lock when a model comes or goes: what they count is read outside.
        let models: Vec<_> = {
            let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
            models.iter().map(|(&id, counts)| (id, Arc::clone(counts))).collect()
        };
        let read = |counts: &ModelCounts| ModelBatches {
            queued: counts.queued.load(Ordering::Relaxed),
            batch_items: counts.batch_items.read(),
            window_used: counts.window_used.read(),
        };
        models.into_iter().map(|(id, counts)| (id, read(&counts))).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_used_from_its_begin_to_its_end() {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let used = [(5, 0), (10, 0), (15, 250), (30, 1000), (40, 1000)];
        for (start, expected) in used {
            assert_eq!(window_used(at(start), at(10), at(30)), expected, "{start}");
        }
        // Too late for a window of any length, or due at once.
        assert_eq!((window_used(at(9), at(10), at(10)), window_used(at(10), at(10), at(10))), (0, 0));
        assert_eq!((window_used(at(11), at(10), at(10)), window_used(at(9), at(10), at(8))), (1000, 0));
    }
}
