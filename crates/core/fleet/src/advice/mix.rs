//! Requests by model and items.

use std::collections::BTreeMap;

use symphony_types::ITEM_BOUNDS;

/// Numbers of requests by model and items, in the buckets of [`ITEM_BOUNDS`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    requests: BTreeMap<(u32, u32), u64>,
}

impl Mix {
    /// Counts requests of a model; each counts as the bound of its bucket. Larger requests count as the last size.
    pub fn count(&mut self, model: u32, items: u32, requests: u64) {
        if requests > 0 {
            let bucket = ITEM_BOUNDS.partition_point(|&bound| bound < u64::from(items)).min(ITEM_BOUNDS.len() - 1);
            let known = self.requests.entry((model, ITEM_BOUNDS[bucket] as u32)).or_default();
            *known = known.saturating_add(requests);
        }
    }

    /// Adds the requests of another mix.
    pub fn add(&mut self, other: &Self) {
        for (&key, &requests) in &other.requests {
            let known = self.requests.entry(key).or_default();
            *known = known.saturating_add(requests);
        }
    }

    /// All requests.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.requests.values().fold(0, |sum, &requests| sum.saturating_add(requests))
    }

    /// The requests of a model by items, in rising order.
    pub(super) fn of(&self, model: u32) -> impl Iterator<Item = (u32, u64)> {
        self.requests.range((model, 0)..=(model, u32::MAX)).map(|(&(_, items), &requests)| (items, requests))
    }

    /// The largest difference of two mixes' cumulative shares, models and items in order (Kolmogorov and Smirnov), from
    /// 0 to 1; 1 if one of them is empty and the other is not.
    #[must_use]
    pub fn distance(&self, other: &Self) -> f64 {
        let totals = [self, other].map(|mix| mix.total() as f64);
        if totals.contains(&0.0) {
            return f64::from(u8::from(totals[0] != totals[1]));
        }
        let mut steps: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        for (mix, weight) in [(self, 1.0 / totals[0]), (other, -1.0 / totals[1])] {
            for (&key, &requests) in &mix.requests {
                *steps.entry(key).or_default() += weight * requests as f64;
            }
        }
        let (mut difference, mut largest) = (0.0_f64, 0.0_f64);
        for step in steps.values() {
            difference += step;
            largest = largest.max(difference.abs());
        }
        largest.min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(requests: &[(u32, u32, u64)]) -> Mix {
        let mut mix = Mix::default();
        requests.iter().for_each(|&(model, items, requests)| mix.count(model, items, requests));
        mix
    }

    #[test]
    fn requests_are_counted_in_buckets() {
        let mut counted = mix(&[(1, 7, 2), (1, 8, 1), (2, 9999, 4), (1, 1, 0)]);
        assert_eq!(counted.of(1).collect::<Vec<_>>(), [(8, 3)]);
        assert_eq!(counted.of(2).collect::<Vec<_>>(), [(4096, 4)]);
        counted.add(&mix(&[(1, 1, 5)]));
        assert_eq!((counted.of(1).collect::<Vec<_>>(), counted.total()), (vec![(1, 5), (8, 3)], 12));
    }

    #[test]
    fn the_distance_is_of_shares_and_not_of_numbers() {
        let small = mix(&[(1, 1, 50), (1, 8, 50)]);
        assert!(small.distance(&mix(&[(1, 1, 5), (1, 8, 5)])) < 1e-9);
        assert!((small.distance(&mix(&[(1, 1, 20), (1, 8, 80)])) - 0.3).abs() < 1e-9);
        assert!((small.distance(&mix(&[(2, 1, 7)])) - 1.0).abs() < 1e-9, "another model");
        assert_eq!((small.distance(&Mix::default()), Mix::default().distance(&Mix::default())), (1.0, 0.0));
    }
}
