//! What the parts of a backend count.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters; they only grow.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Execution time by place of the GPU.
    pub(crate) gpu_busy_ns: Box<[AtomicU64]>,
    pub(crate) plans: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) seals: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Batches of several models that share a trunk.
    pub(crate) mixed_batches: AtomicU64,
    pub(crate) loads: AtomicU64,
    pub(crate) loads_failed: AtomicU64,
    pub(crate) models_hung: AtomicU64,
    pub(crate) gpus_lost: AtomicU64,
    /// Requests whose batch ran without them because their input was late.
    pub(crate) inputs_late: AtomicU64,
    /// Requests whose batch ran without them because their frontend had no input, or could not be reached.
    pub(crate) inputs_gone: AtomicU64,
}

impl Counts {
    /// The counts of a backend with this many GPUs.
    pub(crate) fn of_gpus(count: usize) -> Self {
        Self { gpu_busy_ns: (0..count).map(|_| AtomicU64::new(0)).collect(), ..Self::default() }
    }

    /// The GPU at this place was busy for this time.
    pub(crate) fn was_busy(&self, gpu: usize, ns: u64) {
        if let Some(busy) = self.gpu_busy_ns.get(gpu) {
            Self::add(busy, ns);
        }
    }

    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}
