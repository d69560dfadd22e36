//! Equations 2 and 3 of the Symphony paper, section 4.2: how many GPUs a model keeps busy.

use symphony_scheduler::{DataDelay, target_batch};
use symphony_types::{LatencyProfile, Nanos};

/// A model's need of one GPU kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuNeed {
    /// The largest batch b with (1 + 1/N)·ℓ(b) within the SLO (equation 2).
    pub batch: u32,
    /// N = rate·ℓ(b)/b, the number of busy GPUs (equation 3): fractional, since models share GPUs.
    pub gpus: f64,
}

/// The need at `rate_rps` requests per second within `slo`, the time for gathering and running a batch.
///
/// N staggered GPUs start a batch every ℓ(b)/N = b/rate (equation 3), the time in which the next batch gathers. `None`
/// if not even one request can be answered in time.
#[must_use]
pub fn gpu_need(profile: &LatencyProfile, rate_rps: f64, slo: Nanos) -> Option<GpuNeed> {
    if profile.latency(1) > slo {
        return None;
    }
    let batch = target_batch(profile, rate_rps, slo, DataDelay::default());
    Some(GpuNeed { batch, gpus: rate_rps * profile.latency(batch).as_secs_f64() / f64::from(batch) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_table_4_needs_its_eight_gpus() {
        let resnet = LatencyProfile::from_line(1.053, 5.072, 64).unwrap();
        let need = gpu_need(&resnet, 5839.0, Nanos::from_millis(25)).unwrap();
        assert_eq!(need.batch, 16);
        assert!((need.gpus - 8.0).abs() < 0.01, "{need:?}");
        let inception = LatencyProfile::from_line(5.090, 18.368, 64).unwrap();
        let need = gpu_need(&inception, 1083.0, Nanos::from_millis(70)).unwrap();
        assert!(need.batch == 8 && (need.gpus - 8.0).abs() < 0.02, "{need:?}");
    }

    #[test]
    fn nothing_to_do_needs_nothing_and_an_slo_out_of_reach_has_no_answer() {
        let profile = LatencyProfile::from_line(1.0, 9.0, 8).unwrap();
        assert_eq!(gpu_need(&profile, 0.0, Nanos::from_millis(20)), Some(GpuNeed { batch: 1, gpus: 0.0 }));
        assert_eq!(gpu_need(&profile, 5.0, Nanos::from_millis(9)), None);
    }
}
