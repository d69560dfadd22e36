//! The load of a led sub-cluster, by model and by GPU: the input of the next partition plan.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use symphony_telemetry::buckets::{FINE_BATCH_ITEMS, FINE_SHARES};
use symphony_telemetry::{FineBuckets, ValueCounts, ValueHistogram};
use symphony_types::{GpuId, ITEM_BOUNDS, ModelId, Time};

/// Items of requests, as they are reported.
static REQUEST_ITEMS: FineBuckets = FineBuckets::classic_only(&ITEM_BOUNDS);

/// Counts of a model; written by its worker only.
#[derive(Debug)]
pub(crate) struct ModelCounts {
    pub(crate) arrived_items: AtomicU64,
    /// Items of each of these requests.
    pub(crate) request_items: ValueHistogram,
    pub(crate) dropped: AtomicU64,
    pub(crate) executed: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) late: AtomicU64,
    /// A gauge: how many requests wait now.
    pub(crate) queued: AtomicU64,
    /// The sizes of its batches, in items.
    pub(crate) batch_items: ValueHistogram,
    /// How much of its window each had used when it started, in thousandths.
    pub(crate) window_used: ValueHistogram,
}

impl Default for ModelCounts {
    fn default() -> Self {
        Self {
            arrived_items: AtomicU64::default(),
            request_items: ValueHistogram::new(&REQUEST_ITEMS),
            dropped: AtomicU64::default(),
            executed: AtomicU64::default(),
            failed: AtomicU64::default(),
            late: AtomicU64::default(),
            queued: AtomicU64::default(),
            batch_items: ValueHistogram::new(&FINE_BATCH_ITEMS),
            window_used: ValueHistogram::new(&FINE_SHARES),
        }
    }
}

/// Most models have requests of one or two sizes: a report of a thousand models has few numbers of each.
fn without_trailing_zeros(counts: &[u64]) -> Vec<u64> {
    let end = counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
    counts[..end].to_vec()
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
    /// The sizes of its batches, in items.
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelLoad {
    /// Items of the requests that arrived, without those that a former lead had already.
    pub arrived_items: u64,
    /// Number of these requests by their items, in the buckets of [`ITEM_BOUNDS`]; trailing zeros left out.
    pub request_items: Vec<u64>,
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
            request_items: without_trailing_zeros(&counts.request_items.read().classic()),
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
    fn requests_are_counted_by_their_items_and_the_rest_of_the_buckets_left_out() {
        let loads = Loads::default();
        let counts = loads.of_model(ModelId::new(1));
        assert_eq!(loads.models()[&ModelId::new(1)].request_items, [0; 0]);
        for items in [1, 1, 3, 7, 8] {
            counts.request_items.record(items);
        }
        assert_eq!(loads.models()[&ModelId::new(1)].request_items, [2, 0, 1, 0, 0, 0, 2]);
    }

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
