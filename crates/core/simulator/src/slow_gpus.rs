//! GPUs that are slow for some time.

use symphony_types::{GpuId, Nanos, Time};
use symphony_workload::Slowdown;

/// The slow periods of all GPUs.
#[derive(Clone, Debug)]
pub(crate) struct SlowGpus {
    /// By GPU, in the order of time.
    slow: Vec<Slowdown>,
}

impl SlowGpus {
    pub(crate) fn new(slow: &[Slowdown]) -> Self {
        Self { slow: slow.to_vec() }
    }

    /// The duration of a batch with this start and planned duration.
    #[inline]
    pub(crate) fn stretch(&self, gpu: GpuId, start: Time, latency: Nanos) -> Nanos {
        if self.slow.is_empty() {
            return latency;
        }
        let after = self.slow.partition_point(|slow| (slow.gpu, slow.at) <= (gpu, start));
        let last = after.checked_sub(1).map(|at| self.slow[at]);
        match last.filter(|slow| slow.gpu == gpu && start < slow.until) {
            Some(slow) => Nanos::new((latency.get() as f64 * slow.factor).round() as u64),
            None => latency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_slow_in_its_times_and_no_other_is() {
        let at = Time::from_nanos;
        let slow = |gpu, factor, from, until| Slowdown { gpu: GpuId::new(gpu), factor, at: at(from), until };
        let gpus = SlowGpus::new(&[slow(1, 2.0, 10, at(20)), slow(1, 3.0, 20, at(30)), slow(3, 0.5, 5, Time::NEVER)]);
        let took = |gpu, start| gpus.stretch(GpuId::new(gpu), at(start), Nanos::new(100)).get();
        assert_eq!([9, 10, 19, 20, 29, 30].map(|start| took(1, start)), [100, 200, 200, 300, 300, 100]);
        assert_eq!([took(0, 15), took(2, 15), took(3, 4), took(3, 5)], [100, 100, 100, 50]);
    }
}
