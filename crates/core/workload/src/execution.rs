//! How execution times of batches differ from their profiles.

use crate::check::Check;
use crate::error::ScenarioError;
use crate::text::ExecutionText;

/// The widest spread: at 2, one batch in 40 takes fifty times its median.
pub const LOGNORMAL_SIGMA_MAX: f64 = 2.0;
/// The longest spike, as a multiple of the batch's time.
const SPIKE_FACTOR_MAX: f64 = 1e4;

/// How executions differ from their profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Execution {
    /// Standard deviation of the logarithm of a lognormal factor with mean one, by which every latency is multiplied.
    pub lognormal_sigma: f64,
    /// Probability that a batch has a spike.
    pub spike_probability: f64,
    /// The factor of a spike, at least one.
    pub spike_factor: f64,
}

impl Execution {
    /// Noise of this spread, and no spikes.
    #[must_use]
    pub const fn lognormal(sigma: f64) -> Self {
        Self { lognormal_sigma: sigma, spike_probability: 0.0, spike_factor: 1.0 }
    }

    /// Whether every batch takes exactly ℓ(b).
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.lognormal_sigma == 0.0 && self.spike_probability == 0.0
    }

    pub(crate) fn check(check: &Check<'_>, text: &ExecutionText) -> Result<Self, ScenarioError> {
        let mut execution = Self::lognormal(0.0);
        if let Some(noise) = &text.noise {
            let key = "execution.noise.lognormal_sigma";
            execution.lognormal_sigma = check.number(key, noise.lognormal_sigma, 0.0, LOGNORMAL_SIGMA_MAX)?;
        }
        if let Some(spike) = &text.spike {
            let key = "execution.spike.probability";
            execution.spike_probability = check.number(key, spike.probability, 0.0, 1.0)?;
            execution.spike_factor = check.number("execution.spike.factor", spike.factor, 1.0, SPIKE_FACTOR_MAX)?;
        }
        Ok(execution)
    }
}
