//! Distributions of per-request numbers: items, and time to the deadline.

use std::sync::Arc;

use rand::Rng;

use crate::check::Check;
use crate::error::ScenarioError;

/// Entries of a list of shares.
pub const DISTRIBUTION_ENTRIES_MAX: usize = 100;

/// How a number is drawn for each request: its items, its variant, or its deadline in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueDistribution {
    /// Constant.
    Fixed(u64),
    /// Uniform over the integers of this range, both ends included.
    Uniform(u64, u64),
    /// Values with cumulative shares of requests; the last share is one.
    Shares(Arc<[(f64, u64)]>),
}

impl ValueDistribution {
    /// Draws a number. A constant consumes no randomness.
    #[inline]
    pub fn draw(&self, rng: &mut impl Rng) -> u64 {
        if let Self::Fixed(number) = self { *number } else { self.draw_lot(rng) }
    }

    fn draw_lot(&self, rng: &mut impl Rng) -> u64 {
        match self {
            Self::Fixed(number) => *number,
            Self::Uniform(low, high) => rng.random_range(*low..=*high),
            Self::Shares(entries) => {
                let at: f64 = rng.random();
                let found = entries.get(entries.partition_point(|entry| entry.0 <= at)).or(entries.last());
                found.map_or(0, |entry| entry.1)
            }
        }
    }

    /// The largest possible number.
    #[must_use]
    pub fn max(&self) -> u64 {
        match self {
            Self::Fixed(number) => *number,
            Self::Uniform(_, high) => *high,
            Self::Shares(entries) => entries.iter().map(|entry| entry.1).max().unwrap_or(0),
        }
    }

    /// The smallest possible number.
    #[must_use]
    pub fn min(&self) -> u64 {
        match self {
            Self::Fixed(number) => *number,
            Self::Uniform(low, _) => *low,
            Self::Shares(entries) => entries.iter().map(|entry| entry.1).min().unwrap_or(0),
        }
    }

    /// The expected value of a draw.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self {
            Self::Fixed(number) => *number as f64,
            Self::Uniform(low, high) => (*low as f64 + *high as f64) / 2.0,
            Self::Shares(entries) => {
                let mut upto = 0.0;
                let mean = |entry: &(f64, u64)| (entry.0 - std::mem::replace(&mut upto, entry.0)) * entry.1 as f64;
                entries.iter().map(mean).sum()
            }
        }
    }

    /// The distribution of a list, whose shares may have any total.
    pub(crate) fn from_shares(check: &Check<'_>, key: &str, entries: &[(f64, u64)]) -> Result<Self, ScenarioError> {
        if entries.is_empty() || entries.len() > DISTRIBUTION_ENTRIES_MAX {
            return check.refuse(key, &format!("1 to {DISTRIBUTION_ENTRIES_MAX} entries"), entries.len());
        }
        for (position, entry) in entries.iter().enumerate() {
            check.positive(&format!("{key}.{position}.share"), entry.0, 1e12)?;
        }
        let total: f64 = entries.iter().map(|entry| entry.0).sum();
        let mut upto = 0.0;
        let shares = entries.iter().map(|&(share, number)| {
            upto += share / total;
            (upto, number)
        });
        Ok(Self::Shares(shares.collect()))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn mean_of_draws(distribution: &ValueDistribution) -> f64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        (0..100_000).map(|_| distribution.draw(&mut rng) as f64).sum::<f64>() / 100_000.0
    }

    #[test]
    fn draws_follow_the_law() {
        let shares = ValueDistribution::Shares([(0.25, 10), (1.0, 50)].into());
        for (distribution, mean, max) in
            [(ValueDistribution::Fixed(3), 3.0, 3), (ValueDistribution::Uniform(1, 4), 2.5, 4), (shares, 40.0, 50)]
        {
            assert!((distribution.mean() - mean).abs() < 1e-9);
            assert!((mean_of_draws(&distribution) / mean - 1.0).abs() < 0.01, "{distribution:?}");
            assert_eq!(distribution.max(), max);
        }
    }
}
