//! The differences between two profiles.

use symphony_types::Nanos;

use super::interpolate::sizes;
use super::profile_file::GpuProfile;

/// Two profiles of a model on one kind of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Latencies at some batch sizes that both know: items, before, now.
    pub batches: Vec<(u32, Nanos, Nanos)>,
    /// The largest ratio of now to before over all sizes that both know.
    pub slowest_ratio: f64,
    /// The least one.
    pub fastest_ratio: f64,
    /// The largest batches in items, before and now.
    pub batch_max: (u32, u32),
    /// Static memory in bytes, before and now.
    pub static_memory_bytes: (u64, u64),
    /// Dynamic memory in bytes, before and now.
    pub dynamic_memory_bytes: (u64, u64),
}

/// What has changed from the profile before to the one now.
#[must_use]
pub fn compare(before: &GpuProfile, now: &GpuProfile) -> Comparison {
    let batch_max = (before.latency.batch_max(), now.latency.batch_max());
    let both = batch_max.0.min(batch_max.1);
    let at = |batch| (batch, before.latency.latency(batch), now.latency.latency(batch));
    let ratios = (1..=both).map(|batch| {
        let (_, before, now) = at(batch);
        now.get() as f64 / before.get() as f64
    });
    let (fastest_ratio, slowest_ratio) =
        ratios.fold((f64::INFINITY, 0.0_f64), |(least, most), ratio| (least.min(ratio), most.max(ratio)));
    Comparison {
        batches: sizes(both).into_iter().map(at).collect(),
        slowest_ratio,
        fastest_ratio,
        batch_max,
        static_memory_bytes: (before.static_memory_bytes, now.static_memory_bytes),
        dynamic_memory_bytes: (before.dynamic_memory_bytes, now.dynamic_memory_bytes),
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::LatencyProfile;

    use super::*;

    #[test]
    fn the_worst_size_counts_even_if_it_is_not_shown() {
        let profile = |ms: &[u64]| GpuProfile {
            latency: LatencyProfile::from_table(&ms.iter().map(|&ms| Nanos::from_millis(ms)).collect::<Vec<_>>())
                .unwrap(),
            static_memory_bytes: ms.len() as u64,
            dynamic_memory_bytes: 1,
            machine: String::new(),
            raised_batches: Vec::new(),
        };
        let found = compare(&profile(&[2, 4, 6, 8, 10, 12]), &profile(&[2, 3, 6, 8, 15, 15, 16]));
        assert_eq!(found.batches.iter().map(|b| b.0).collect::<Vec<_>>(), [1, 2, 3, 4, 6]);
        assert_eq!((found.slowest_ratio, found.fastest_ratio), (1.5, 0.75));
        assert_eq!((found.batch_max, found.static_memory_bytes), ((6, 7), (6, 7)));
    }
}
