//! Laws of the items of a request: lognormal, Gaussian, or counted in a CSV file; cut to the batches that may run.

use serde::Deserialize;
use symphony_types::PROFILE_BATCH_MAX;

use crate::value_distribution::ValueDistribution;

/// The widest spread of a Gaussian law, in items: the widest range of items.
pub const GAUSSIAN_SIGMA_MAX: f64 = PROFILE_BATCH_MAX as f64;
/// The widest spread of a lognormal law, of the logarithm: at 4, one request in a hundred has over ten thousand times
/// the median.
pub const LOGNORMAL_ITEMS_SIGMA_MAX: f64 = 4.0;

/// The shape of a law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ItemLaw {
    /// The natural logarithm of the items is normal.
    Lognormal {
        /// Mean of the logarithm, as numpy has it: the median is e to it.
        mean: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// The items are normal.
    Gaussian {
        /// Mean, in items.
        mean: f64,
        /// Standard deviation, in items.
        sigma: f64,
    },
}

/// A law that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("key `{key}`: expected {expected}, got {got}")]
pub struct ItemLawError {
    /// The key below the law's: `mean` or `sigma`.
    pub key: &'static str,
    /// The value or range that was expected.
    pub expected: String,
    /// What was found.
    pub got: f64,
}

impl ItemLaw {
    /// The law's name as a key.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Lognormal { .. } => "lognormal",
            Self::Gaussian { .. } => "gaussian",
        }
    }

    /// The law over whole numbers of items from 1 to `items_max`: what lies outside is drawn again, so that it adds to
    /// the rest in proportion.
    ///
    /// # Errors
    /// If the spread is not positive or too wide, or if more than half of the law would be cut away.
    pub fn within(self, items_max: u32) -> Result<ValueDistribution, ItemLawError> {
        let (mean, sigma, sigma_max) = match self {
            Self::Lognormal { mean, sigma } => (mean, sigma, LOGNORMAL_ITEMS_SIGMA_MAX),
            Self::Gaussian { mean, sigma } => (mean, sigma, GAUSSIAN_SIGMA_MAX),
        };
        if !(sigma > 0.0 && sigma <= sigma_max) {
            let expected = format!("a number above 0, at most {sigma_max}");
            return Err(ItemLawError { key: "sigma", expected, got: sigma });
        }
        let (median, of) = match self {
            Self::Lognormal { .. } => (mean.exp(), "the natural logarithm of the median, which is to be"),
            Self::Gaussian { .. } => (mean, "a mean of"),
        };
        if !(median >= 0.5 && median < f64::from(items_max) + 0.5) {
            let expected = format!("{of} 1 to {items_max} items, the largest batch that may run");
            return Err(ItemLawError { key: "mean", expected, got: mean });
        }
        let log_density = |items: f64| match self {
            Self::Lognormal { .. } => -0.5 * ((items.ln() - mean) / sigma).powi(2) - items.ln(),
            Self::Gaussian { .. } => -0.5 * ((items - mean) / sigma).powi(2),
        };
        // Relative to the highest density, so that a narrow law does not vanish between two numbers.
        let halves = |items: u32| [f64::from(items) - 0.5, f64::from(items), f64::from(items) + 0.5];
        let densities = (1..=items_max).flat_map(halves).map(log_density);
        let highest = densities.fold(f64::NEG_INFINITY, f64::max);
        let density = |items: f64| (log_density(items) - highest).exp();
        // Simpson's rule over the numbers that round to this one.
        let share = |items: u32| {
            let [low, middle, high] = halves(items).map(density);
            (low + 4.0 * middle + high) / 6.0
        };
        let shares: Vec<(f64, u64)> = (1..=items_max).map(|items| (share(items), u64::from(items))).collect();
        Ok(cumulative(&shares))
    }
}

/// A distribution from shares of any positive total.
fn cumulative(shares: &[(f64, u64)]) -> ValueDistribution {
    let total: f64 = shares.iter().map(|entry| entry.0).sum();
    let mut upto = 0.0;
    let counted = shares.iter().filter(|entry| entry.0 > 0.0);
    let entries = counted.map(|&(share, items)| {
        upto += share / total;
        (upto, items)
    });
    ValueDistribution::Shares(entries.collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    items: u32,
    share: f64,
}

/// The law of a CSV file with the columns `items,share`, such as a histogram of requests; shares may have any total.
///
/// # Errors
/// If the columns are others, a number of items is not 1 to `items_max` or comes twice, a share is negative, or all are
/// zero. The message names the row.
pub fn items_from_csv(text: &str, items_max: u32) -> Result<ValueDistribution, String> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).comment(Some(b'#')).from_reader(text.as_bytes());
    let mut shares: Vec<(f64, u64)> = Vec::new();
    for (number, row) in (1..).zip(reader.deserialize::<Row>()) {
        let Row { items, share } = row.map_err(|error| format!("expected columns items,share: {error}"))?;
        if !(1..=items_max).contains(&items) {
            let most = format!("1 to {items_max} items, the largest batch that may run");
            return Err(format!("row {number}: expected {most}, got {items}"));
        }
        if !(share.is_finite() && share >= 0.0) {
            return Err(format!("row {number}: expected a share of 0 or more, got {share}"));
        }
        shares.push((share, u64::from(items)));
    }
    shares.sort_unstable_by_key(|entry| entry.1);
    if let Some(twice) = shares.windows(2).find(|pair| pair[0].1 == pair[1].1) {
        return Err(format!("{} items come twice; expected one row each", twice[0].1));
    }
    let total: f64 = shares.iter().map(|entry| entry.0).sum();
    if !(total > 0.0 && total.is_finite()) {
        return Err("expected at least one share above 0, with a finite sum".to_owned());
    }
    Ok(cumulative(&shares))
}

/// The share of requests with each number of items that comes at all, in rising order; shares add up to one.
#[must_use]
pub fn item_shares(items: &ValueDistribution) -> Vec<(u32, f64)> {
    let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    match items {
        ValueDistribution::Fixed(value) => vec![(number(*value), 1.0)],
        ValueDistribution::Uniform(low, high) => {
            let count = (high - low + 1) as f64;
            (*low..=*high).map(|value| (number(value), 1.0 / count)).collect()
        }
        ValueDistribution::Shares(entries) => {
            let mut upto = 0.0;
            let own = |entry: &(f64, u64)| (number(entry.1), entry.0 - std::mem::replace(&mut upto, entry.0));
            let mut shares: Vec<(u32, f64)> = entries.iter().map(own).collect();
            // The far tail of a law vanishes in the sum of what is before it.
            shares.retain(|entry| entry.1 > 0.0);
            shares.sort_by_key(|entry| entry.0);
            shares
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_and_deviation(law: &ValueDistribution, of: impl Fn(f64) -> f64) -> (f64, f64) {
        let shares = item_shares(law);
        let mean: f64 = shares.iter().map(|&(items, share)| share * of(f64::from(items))).sum();
        let variance: f64 = shares.iter().map(|&(items, share)| share * (of(f64::from(items)) - mean).powi(2)).sum();
        (mean, variance.sqrt())
    }

    #[test]
    fn laws_have_the_mean_and_spread_that_were_asked_for() {
        let gaussian = ItemLaw::Gaussian { mean: 250.0, sigma: 50.0 }.within(1000).unwrap();
        let (mean, deviation) = mean_and_deviation(&gaussian, |items| items);
        assert!((mean - 250.0).abs() < 0.01 && (deviation - 50.0).abs() < 0.01, "{mean} {deviation}");
        let lognormal = ItemLaw::Lognormal { mean: 5.1, sigma: 0.2 }.within(1000).unwrap();
        let (mean, deviation) = mean_and_deviation(&lognormal, f64::ln);
        assert!((mean - 5.1).abs() < 1e-3 && (deviation - 0.2).abs() < 1e-3, "{mean} {deviation}");
        // A law much narrower than one item is that item.
        let narrow = ItemLaw::Gaussian { mean: 10.2, sigma: 1e-4 }.within(20).unwrap();
        assert_eq!(item_shares(&narrow), [(10, 1.0)]);
        // What never comes is not among the sizes, so no GPU need serve it.
        let largest = item_shares(&ItemLaw::Gaussian { mean: 30.0, sigma: 1.0 }.within(1000).unwrap()).last().copied();
        assert!(largest.is_some_and(|(items, share)| items < 45 && share > 0.0), "{largest:?}");
    }

    #[test]
    fn what_is_cut_away_adds_to_the_rest_in_proportion() {
        let whole = item_shares(&ItemLaw::Gaussian { mean: 50.0, sigma: 20.0 }.within(1000).unwrap());
        let cut = item_shares(&ItemLaw::Gaussian { mean: 50.0, sigma: 20.0 }.within(60).unwrap());
        assert_eq!(cut.last().map(|entry| entry.0), Some(60));
        let kept: f64 = whole.iter().filter(|entry| entry.0 <= 60).map(|entry| entry.1).sum();
        for (of_whole, of_cut) in whole.iter().zip(&cut) {
            assert!((of_whole.1 / kept - of_cut.1).abs() < 1e-9, "{of_whole:?} {of_cut:?}");
        }
    }

    #[test]
    fn laws_that_would_be_cut_by_half_and_wrong_spreads_are_refused() {
        let refused = |law: ItemLaw, words: &str| {
            let error = law.within(100).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        refused(ItemLaw::Gaussian { mean: 101.0, sigma: 5.0 }, "key `mean`: expected a mean of 1 to 100 items");
        refused(ItemLaw::Gaussian { mean: 50.0, sigma: 0.0 }, "key `sigma`: expected a number above 0");
        refused(ItemLaw::Gaussian { mean: f64::NAN, sigma: 1.0 }, "key `mean`");
        refused(ItemLaw::Lognormal { mean: 50.0, sigma: 0.5 }, "the natural logarithm of the median");
        refused(ItemLaw::Lognormal { mean: 3.0, sigma: 5.0 }, "at most 4, got 5");
    }

    #[test]
    fn a_histogram_is_a_law_and_its_mistakes_are_named() {
        let law = items_from_csv("items,share\n20,3\n10,1\n30,0\n", 100).unwrap();
        assert_eq!(item_shares(&law), [(10, 0.25), (20, 0.75)]);
        let refused = |text: &str, words: &str| {
            let error = items_from_csv(text, 100).unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        refused("items,share\n101,1\n", "row 1: expected 1 to 100 items");
        refused("items,share\n1,1\n2,-1\n", "row 2: expected a share of 0 or more, got -1");
        refused("items,share\n1,1\n1,1\n", "1 items come twice");
        refused("items,share\n1,0\n", "at least one share above 0");
        refused("size,share\n1,0\n", "expected columns items,share");
        refused("", "at least one share above 0");
    }
}
