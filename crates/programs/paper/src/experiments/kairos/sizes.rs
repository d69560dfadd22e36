//! The sizes of requests: the mix of the paper's artifact, and the Gaussian of its section 8.6.

use std::collections::BTreeMap;

use symphony_workload::{ItemLaw, item_shares};

/// The largest request (section 5.1).
const ITEMS_MAX: u32 = 1000;
/// The artifact measured latencies of multiples of this, and rounds requests up to them.
const STEP: u32 = 10;

/// A law of sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Its name in keys and plots.
    pub(crate) name: &'static str,
    law: fn() -> BTreeMap<u32, f64>,
}

/// The sampler of the artifact (`helper.py`, after DeepRecSys): of 99 requests 64 are lognormal from 100 to 200 items,
/// or 190 to 199 where that fails; the others are even, 8 below 100, 22 from 200 to 599 and 5 from 600 to 999.
pub(crate) const MIX: Sizes = Sizes { name: "log-normal mix", law: mix };
/// The paper gives no numbers: here with the mean of the mix, and a spread that reaches all sizes of it.
pub(crate) const GAUSSIAN: Sizes = Sizes { name: "Gaussian", law: gaussian };

/// Mean and standard deviation of the Gaussian, in items.
pub(crate) const GAUSSIAN_ITEMS: (f64, f64) = (240.0, 100.0);

impl Sizes {
    /// Shares by items, rising; they add up to one.
    pub(crate) fn shares(&self) -> Vec<(u32, f64)> {
        let mut rounded: BTreeMap<u32, f64> = BTreeMap::new();
        for (items, share) in (self.law)() {
            *rounded.entry(items.div_ceil(STEP) * STEP).or_default() += share;
        }
        let total: f64 = rounded.values().sum();
        rounded.into_iter().map(|(items, share)| (items, share / total)).collect()
    }
}

fn even(shares: &mut BTreeMap<u32, f64>, sizes: std::ops::Range<u32>, share: f64) {
    let each = share / f64::from(sizes.end - sizes.start);
    sizes.for_each(|items| *shares.entry(items).or_default() += each);
}

fn law(law: ItemLaw) -> Vec<(u32, f64)> {
    // Both laws of this file lie within the range.
    law.within(ITEMS_MAX).map(|items| item_shares(&items)).unwrap_or_default()
}

fn mix() -> BTreeMap<u32, f64> {
    let mut shares = BTreeMap::new();
    even(&mut shares, 1..100, 8.0 / 99.0);
    even(&mut shares, 200..600, 22.0 / 99.0);
    even(&mut shares, 600..1000, 5.0 / 99.0);
    let mut outside = 0.0;
    for (items, share) in law(ItemLaw::Lognormal { mean: 5.1, sigma: 0.2 }) {
        let share = share * 64.0 / 99.0;
        if (100..=200).contains(&items) { *shares.entry(items).or_default() += share } else { outside += share }
    }
    even(&mut shares, 190..200, outside);
    shares
}

fn gaussian() -> BTreeMap<u32, f64> {
    let (mean, sigma) = GAUSSIAN_ITEMS;
    law(ItemLaw::Gaussian { mean, sigma }).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_has_the_shares_of_the_artifacts_profile() {
        let shares = MIX.shares();
        let upto = |items: u32| shares.iter().take_while(|size| size.0 <= items).map(|size| size.1).sum::<f64>();
        assert!((upto(1000) - 1.0).abs() < 1e-9);
        // Its profile has 0.804, 0.951 and 0.985 below 340, 620 and 880 items, from a sample.
        for (items, expected) in [(340, 0.804), (620, 0.951), (880, 0.985)] {
            assert!((upto(items) - expected).abs() < 0.006, "{items}: {}", upto(items));
        }
        let mean = |sizes: &Sizes| sizes.shares().iter().map(|&(items, share)| f64::from(items) * share).sum::<f64>();
        assert!((235.0..255.0).contains(&mean(&MIX)), "{}", mean(&MIX));
        assert!((mean(&GAUSSIAN) - mean(&MIX)).abs() < 10.0, "{}", mean(&GAUSSIAN));
    }
}
