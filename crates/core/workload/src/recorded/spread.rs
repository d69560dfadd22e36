//! Counts become arrivals.

use rand::Rng;
use symphony_types::Nanos;

use crate::seed::{SPREAD_STREAM, stream_rng};

/// How arrivals lie within a span if only their number is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Each anywhere in the span, independently: a Poisson process with a known number.
    #[default]
    Poisson,
    /// At equal distances, from a random phase on.
    Uniform,
}

/// How arrivals are spread, and the seed of its randomness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpreadSeed {
    /// The way.
    pub spread: Spread,
    /// The seed. Sources have streams of their own: another source changes no arrival of this one.
    pub seed: u64,
}

/// The spreading of one source's counts.
pub(super) struct Spreading {
    spread: Spread,
    rng: rand_xoshiro::Xoshiro256PlusPlus,
}

impl SpreadSeed {
    pub(super) fn of_source(self, source: u64) -> Spreading {
        Spreading { spread: self.spread, rng: stream_rng(self.seed, SPREAD_STREAM + source) }
    }
}

impl Spreading {
    /// Passes `count` times within [from, from + span) to `take`, in no particular order.
    pub(super) fn each(&mut self, count: u64, from: Nanos, span: Nanos, mut take: impl FnMut(Nanos)) {
        let phase: f64 = if self.spread == Spread::Uniform { self.rng.random() } else { 0.0 };
        for number in 0..count {
            let place = match self.spread {
                Spread::Poisson => self.rng.random::<f64>(),
                Spread::Uniform => (number as f64 + phase) / count as f64,
            };
            let within = ((place * span.get() as f64) as u64).min(span.get().saturating_sub(1));
            take(Nanos::new(from.get().saturating_add(within)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(spread: Spread, seed: u64, count: u64) -> Vec<u64> {
        let mut times = Vec::new();
        let span = Nanos::from_millis(60_000);
        let from = Nanos::from_millis(5_000);
        SpreadSeed { spread, seed }.of_source(3).each(count, from, span, |at| times.push(at.get()));
        times.sort_unstable();
        times
    }

    #[test]
    fn every_arrival_lies_in_its_span_and_a_seed_repeats_it() {
        for spread in [Spread::Poisson, Spread::Uniform] {
            let one = times(spread, 7, 1000);
            assert_eq!(one.len(), 1000);
            assert!(one[0] >= 5_000_000_000 && *one.last().unwrap() < 65_000_000_000, "{spread:?}");
            assert_eq!(one, times(spread, 7, 1000));
            assert_ne!(one, times(spread, 8, 1000));
        }
    }

    #[test]
    fn distances_are_equal_or_those_of_chance() {
        let gaps = |times: &[u64]| times.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>();
        let uniform = gaps(&times(Spread::Uniform, 1, 600));
        assert!(uniform.iter().all(|gap| gap.abs_diff(100_000_000) <= 1), "{uniform:?}");
        let poisson = gaps(&times(Spread::Poisson, 1, 600));
        // Exponential gaps: a share 1/e of them is longer than the mean.
        let longer = poisson.iter().filter(|&&gap| gap > 100_000_000).count() as f64 / 599.0;
        assert!((0.30..0.44).contains(&longer), "{longer}");
    }
}
