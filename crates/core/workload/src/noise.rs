//! Seeded noise of execution times, a stream per GPU.

use rand::Rng;
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_types::Nanos;

use crate::execution::Execution;
use crate::scenario::Scenario;
use crate::seed::{NOISE_STREAM, stream_rng};

/// The noise of one GPU: a separate stream, so that a GPU's executions do not affect the others.
#[derive(Clone, Debug)]
pub struct NoiseStream {
    execution: Execution,
    rng: Xoshiro256PlusPlus,
}

impl NoiseStream {
    /// The stream of GPU number `gpu` under this seed.
    #[must_use]
    pub fn new(execution: Execution, seed: u64, gpu: u32) -> Self {
        Self { execution, rng: stream_rng(seed, NOISE_STREAM + u64::from(gpu)) }
    }

    /// The real time of a batch whose planned time is `latency`.
    pub fn stretch(&mut self, latency: Nanos) -> Nanos {
        let Execution { lognormal_sigma: sigma, spike_probability, spike_factor } = self.execution;
        let normal: f64 = self.rng.sample(StandardNormal);
        let mut factor = (sigma * normal - sigma * sigma / 2.0).exp();
        // Always drawn, so that a probability changes only which batches have spikes.
        if self.rng.random::<f64>() < spike_probability {
            factor *= spike_factor;
        }
        Nanos::new((latency.get() as f64 * factor).round() as u64)
    }
}

/// One stream per GPU for this seed; empty if execution is exact.
#[must_use]
pub fn noise_streams(scenario: &Scenario, seed: u64) -> Vec<NoiseStream> {
    let execution = scenario.execution;
    if execution.is_exact() {
        return Vec::new();
    }
    (0..scenario.gpu_count()).map(|gpu| NoiseStream::new(execution, seed, gpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean of the factors, and standard deviation of their logarithms.
    fn drawn(sigma: f64, seed: u64, gpu: u32) -> (f64, f64) {
        const BATCHES: u32 = 200_000;
        let mut noise = NoiseStream::new(Execution::lognormal(sigma), seed, gpu);
        let second = Nanos::from_secs_f64(1.0);
        let factors: Vec<f64> = (0..BATCHES).map(|_| noise.stretch(second).get() as f64 / 1e9).collect();
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / f64::from(BATCHES);
        let of_logarithms = mean(&mut factors.iter().map(|factor| factor.ln()));
        let variance = mean(&mut factors.iter().map(|factor| (factor.ln() - of_logarithms).powi(2)));
        (mean(&mut factors.iter().copied()), variance.sqrt())
    }

    #[test]
    fn factors_have_mean_one_and_logarithms_the_spread_that_was_asked_for() {
        for sigma in [0.0, 0.05, 0.3, 1.0] {
            let (mean, spread) = drawn(sigma, 7, 3);
            // Four standard errors of the mean.
            let tolerance = 4.0 * (sigma * sigma).exp_m1().sqrt() / f64::from(200_000).sqrt();
            assert!((mean - 1.0).abs() <= tolerance, "sigma {sigma}: mean {mean}");
            assert!((spread - sigma).abs() <= 0.01 * sigma, "sigma {sigma}: spread {spread}");
        }
    }

    #[test]
    fn a_gpu_draws_the_same_again_and_others_draw_something_else() {
        let first =
            |seed, gpu| NoiseStream::new(Execution::lognormal(0.1), seed, gpu).stretch(Nanos::from_millis_f64(1.0));
        assert_eq!(first(1, 0), first(1, 0));
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 0), first(2, 0));
    }
}
