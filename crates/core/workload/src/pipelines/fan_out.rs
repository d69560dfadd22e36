//! How many rows a result brings along an edge: drawn from a law whose mean is the expected γ.

use std::sync::Arc;

use rand::Rng;
use rand_distr::{Distribution, Poisson};
use serde::Deserialize;
use symphony_types::Time;

use crate::rate_profile::RateProfile;
use crate::seed::{FAN_OUT_STREAM, stream_rng};

/// The odd number nearest to 2^64 divided by the golden ratio: neighbouring requests get seeds far apart.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bits for the number of a stage request within its request, of which there are at most 4096.
const ASK_BITS: u32 = 16;

/// The law of rows along an edge that can bring more than one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FanOutLaw {
    /// Poisson: objects that appear independently of each other.
    #[default]
    Poisson,
    /// ⌊γ⌋ rows, and one more with the probability that is left.
    Fixed,
}

/// The rows along one edge.
#[derive(Clone, Debug, PartialEq)]
pub struct FanOut {
    pub(crate) law: FanOutLaw,
    /// γ as the pipeline expects it.
    pub(crate) gamma: f64,
    /// Rows beyond it are left out.
    pub(crate) most: u32,
    /// The factor of γ over time, if it changes.
    pub(crate) profile: Option<Arc<RateProfile>>,
}

impl FanOut {
    /// The mean of the law at a time; what is left out beyond the edge's `most` makes the mean of rows smaller.
    #[must_use]
    pub fn mean_at(&self, at: Time) -> f64 {
        self.gamma * self.profile.as_ref().map_or(1.0, |profile| profile.factor_at(at))
    }

    /// Draws the rows of a result, of a request that arrives at this time. Where at most one row goes along, it does
    /// with probability γ, whatever the law.
    pub fn draw(&self, at: Time, rng: &mut impl Rng) -> u32 {
        let mean = self.mean_at(at);
        let rows = if self.most == 1 || self.law == FanOutLaw::Fixed {
            let lot: f64 = rng.random();
            (mean.floor() + f64::from(u8::from(lot < mean.fract()))) as u32
        } else {
            // A mean of zero has no law, and no rows.
            Poisson::new(mean).map_or(0, |law| {
                let rows: f64 = law.sample(rng);
                rows as u32
            })
        };
        rows.min(self.most)
    }
}

/// The random numbers of one result: they depend on the seed, the pipeline, the number of its request and that of the
/// stage request, so that every policy sees the same objects in the same picture. Behind the stages that the first one
/// leads to, numbers follow the order of results: there only the law is the same.
#[must_use]
pub fn result_rng(seed: u64, pipeline: usize, request: u64, ask: u32) -> impl Rng {
    let of_request = seed.wrapping_add(request.wrapping_add(1).wrapping_mul(GOLDEN));
    stream_rng(of_request, FAN_OUT_STREAM + ((pipeline as u64) << ASK_BITS) + u64::from(ask))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(law: FanOutLaw, gamma: f64, most: u32) -> f64 {
        const RESULTS: u64 = 50_000;
        let edge = FanOut { law, gamma, most, profile: None };
        let rows = (0..RESULTS).map(|request| edge.draw(Time::ZERO, &mut result_rng(7, 1, request, 0)));
        rows.map(f64::from).sum::<f64>() / RESULTS as f64
    }

    #[test]
    fn the_mean_of_rows_is_the_expected_gamma() {
        for (law, gamma, most) in [
            (FanOutLaw::Poisson, 0.1, 32),
            (FanOutLaw::Poisson, 3.0, 32),
            (FanOutLaw::Poisson, 20.0, 80),
            (FanOutLaw::Poisson, 0.3, 1),
            (FanOutLaw::Fixed, 2.25, 32),
        ] {
            let found = mean(law, gamma, most);
            // Four standard errors of a Poisson law, the widest of these.
            let tolerance = 4.0 * (gamma / 50_000.0).sqrt();
            assert!((found - gamma).abs() < tolerance, "{law:?}, γ = {gamma}: {found}");
        }
        assert!(mean(FanOutLaw::Poisson, 3.0, 3) < 2.6, "rows beyond the most are left out");
    }

    #[test]
    fn a_result_has_the_same_rows_again_and_others_have_others() {
        let edge = FanOut { law: FanOutLaw::Poisson, gamma: 10.0, most: 40, profile: None };
        let draw = |seed, pipeline, request, ask| {
            let mut rng = result_rng(seed, pipeline, request, ask);
            std::array::from_fn::<u32, 8, _>(|_| edge.draw(Time::ZERO, &mut rng))
        };
        let first = draw(1, 0, 0, 0);
        assert_eq!(first, draw(1, 0, 0, 0));
        for other in [draw(2, 0, 0, 0), draw(1, 1, 0, 0), draw(1, 0, 1, 0), draw(1, 0, 0, 1)] {
            assert_ne!(first, other);
        }
    }
}
