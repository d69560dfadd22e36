//! How long batches really take: as profiles say, or with seeded noise.

use rand::Rng;
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_types::Nanos;

use crate::check::Check;
use crate::error::ScenarioError;
use crate::scenario::Scenario;
use crate::seed::{NOISE_STREAM, stream_rng};
use crate::text::ExecutionText;

/// The widest spread: at 2, one batch in 40 takes seven times its median.
const SIGMA_MAX: f64 = 2.0;
/// The longest spike, as a multiple of what the batch would have taken.
const SPIKE_FACTOR_MAX: f64 = 1e4;

/// What makes executions differ from their profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Execution {
    /// Every latency is multiplied by a lognormal number of mean one whose logarithm has this standard deviation.
    pub lognormal_sigma: f64,
    /// Share of batches that are hit by a spike.
    pub spike_probability: f64,
    /// By how much a spike multiplies, at least one.
    pub spike_factor: f64,
}

impl Execution {
    /// Whether every batch takes exactly ℓ(b).
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.lognormal_sigma == 0.0 && self.spike_probability == 0.0
    }

    pub(crate) fn check(check: &Check<'_>, text: &ExecutionText) -> Result<Self, ScenarioError> {
        let mut execution = Self { spike_factor: 1.0, ..Self::default() };
        if let Some(noise) = &text.noise {
            let key = "execution.noise.lognormal_sigma";
            execution.lognormal_sigma = check.number(key, noise.lognormal_sigma, 0.0, SIGMA_MAX)?;
        }
        if let Some(spike) = &text.spike {
            let key = "execution.spike.probability";
            execution.spike_probability = check.number(key, spike.probability, 0.0, 1.0)?;
            execution.spike_factor = check.number("execution.spike.factor", spike.factor, 1.0, SPIKE_FACTOR_MAX)?;
        }
        Ok(execution)
    }
}

/// The noise of one GPU: a stream of its own, so that what one GPU executes changes nothing for the others.
#[derive(Clone, Debug)]
pub struct NoiseStream {
    execution: Execution,
    rng: Xoshiro256PlusPlus,
}

impl NoiseStream {
    /// What a batch that should take `latency` takes.
    pub fn stretch(&mut self, latency: Nanos) -> Nanos {
        let Execution { lognormal_sigma: sigma, spike_probability, spike_factor } = self.execution;
        let normal: f64 = self.rng.sample(StandardNormal);
        let mut factor = (sigma * normal - sigma * sigma / 2.0).exp();
        // Drawn always, so that a probability changes which batches are hit and nothing else.
        if self.rng.random::<f64>() < spike_probability {
            factor *= spike_factor;
        }
        Nanos::new((latency.get() as f64 * factor).round() as u64)
    }
}

/// One stream per GPU for this seed; none where execution is exact.
#[must_use]
pub fn noise_streams(scenario: &Scenario, seed: u64) -> Vec<NoiseStream> {
    let execution = scenario.execution;
    if execution.is_exact() {
        return Vec::new();
    }
    let stream = |gpu| NoiseStream { execution, rng: stream_rng(seed, NOISE_STREAM + u64::from(gpu)) };
    (0..scenario.gpu_count()).map(stream).collect()
}
