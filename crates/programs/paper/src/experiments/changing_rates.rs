//! Rates that change as over a day: slowly and together, and in bursts of single models.
//!
//! The Symphony paper, section 5.6, derives them from 150 hours of video, which are not public. These have the same
//! features: days, models that are slightly out of step, and moments in which one of them gets more requests.

use std::f64::consts::TAU;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// From one change of the rate to the next, in seconds.
pub(crate) const STEP_S: f64 = 10.0;
/// A day, shortened to this many seconds: rises are then 17 times as steep as in reality.
const DAY_S: f64 = 5_000.0;
/// How far the rate goes up and down in a day, as a share of its mean.
const DAY_SWING: f64 = 0.55;
/// Days of models are apart by up to this share of a day.
const DAY_SHIFT: f64 = 0.08;
/// From the beginning of one burst of a model to the next, on average, in seconds.
const BURST_EVERY_S: f64 = 2_000.0;
/// How long a burst is: from, to, in seconds.
const BURST_S: (f64, f64) = (60.0, 400.0);
/// The factor of the rate during a burst.
const BURST_FACTOR: (f64, f64) = (1.5, 2.5);
/// Small changes from step to step, as a share.
const WOBBLE: f64 = 0.02;

/// Factors of one model's rate for each [`STEP_S`] of `duration_s`.
pub(crate) fn factors(seed: u64, model: u64, duration_s: f64) -> Vec<f64> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (model + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let shift = rng.random_range(-DAY_SHIFT..DAY_SHIFT);
    let steps = (duration_s / STEP_S).ceil() as usize;
    let mut factors: Vec<f64> = (0..steps)
        .map(|step| {
            let day = step as f64 * STEP_S / DAY_S + shift;
            // Begins at the lowest point of the night.
            (1.0 - DAY_SWING * (TAU * day).cos()) * rng.random_range(1.0 - WOBBLE..1.0 + WOBBLE)
        })
        .collect();
    let mut at_s = rng.random_range(0.0..BURST_EVERY_S);
    while at_s < duration_s {
        let (length_s, factor) =
            (rng.random_range(BURST_S.0..BURST_S.1), rng.random_range(BURST_FACTOR.0..BURST_FACTOR.1));
        let (from, to) = ((at_s / STEP_S) as usize, ((at_s + length_s) / STEP_S) as usize);
        factors.iter_mut().take(to).skip(from).for_each(|rate| *rate *= factor);
        at_s += length_s + rng.random_range(0.0..2.0 * (BURST_EVERY_S - length_s));
    }
    factors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_bursts_are_there_and_a_seed_decides_them() {
        let of = |model| factors(1, model, 10_000.0);
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
        for model in 0..24 {
            let factors = of(model);
            assert_eq!(factors.len(), 1_000);
            let (least, most) =
                factors.iter().fold((f64::MAX, 0.0_f64), |(least, most), &at| (least.min(at), most.max(at)));
            assert!((0.4..0.5).contains(&least) && (1.5..4.0).contains(&most), "{least} to {most}");
        }
        let jumps = (0..24).flat_map(of).collect::<Vec<_>>();
        assert!(jumps.windows(2).filter(|pair| pair[1] > 1.4 * pair[0]).count() > 50);
    }
}
