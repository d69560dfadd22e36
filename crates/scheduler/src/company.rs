//! What waiting for company is worth in a sub-cluster whose models are asked unequally often.

use symphony_types::Nanos;

/// Gaps of Poisson arrivals within which another arrival comes with the probability that is worth waiting for by itself, 0.8: −ln 0.2.
const HOPE_GAPS: f64 = 1.609;
/// A pool is uneven if somebody is asked less than one in so many times as often as the model of a mean request. Rates of models that
/// are asked alike are never measured as far apart as that.
const UNEVEN: f64 = 2.0;
/// The part of the GPU time, one in so many, that fixed costs have to take for company to be dear to the pool (docs/adr/0008).
const FIXED_SHARE: f64 = 2.0;

/// What models that hope for company ask of the GPUs, added up over models and over the moments at which they told: only ratios of it
/// mean anything. Of batches that wait to the end of their window, in GPU time per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Company {
    /// What the batches take.
    pub busy: Nanos,
    /// Their fixed costs in it.
    pub fixed: Nanos,
    /// What they take, times the GPUs that gaining a batch's time of slack costs their model.
    pub priced: Nanos,
    /// Items per second.
    pub rates: u64,
    /// The squares of the rates.
    pub rates_squared: u64,
    /// The lowest rate; none where nobody told.
    pub rate_min: Option<u32>,
}

impl Company {
    /// This and another one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            busy: self.busy + other.busy,
            fixed: self.fixed + other.fixed,
            priced: self.priced + other.priced,
            rates: self.rates.saturating_add(other.rates),
            rates_squared: self.rates_squared.saturating_add(other.rates_squared),
            rate_min: [self.rate_min, other.rate_min].into_iter().flatten().min(),
        }
    }

    /// How long before the end of its window hope lets a batch start at the most: [`Nanos::MAX`] if as early as it likes.
    ///
    /// Who is asked rarely gives up hope at once and starts at once, and has far more time to find a GPU than the others need: with small
    /// batches, whose fixed costs take the GPUs that the others then miss. So nobody gives up hope earlier than the model of a mean
    /// request would, and the later, the dearer slack is to the pool. Where all are asked alike each queue knows that by itself; where
    /// fixed costs are the smaller part of the GPU time small batches do little harm, and slack is worth more.
    #[must_use]
    pub(crate) fn hope_max(&self) -> Nanos {
        let Some(rate_min) = self.rate_min else { return Nanos::MAX };
        let (busy_s, fixed_s) = (self.busy.as_secs_f64(), self.fixed.as_secs_f64());
        // Of a mean request, not of a mean model.
        let rate = self.rates_squared as f64 / (self.rates as f64).max(1.0);
        let is_uneven = f64::from(rate_min) * UNEVEN < rate;
        if !is_uneven || busy_s <= 0.0 || fixed_s * FIXED_SHARE < busy_s {
            return Nanos::MAX;
        }
        // GPUs for a batch's time of slack, in the mean over the GPU time.
        let price = self.priced.as_secs_f64() / busy_s;
        Nanos::from_secs_f64(HOPE_GAPS / (rate * price * price.max(1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model with so many items per second, whose batches take so many milliseconds of GPU time per second, fixed costs so many.
    fn model(rate: u32, busy_ms: u64, fixed_ms: u64, price: u64) -> Company {
        Company {
            busy: Nanos::from_millis(busy_ms),
            fixed: Nanos::from_millis(fixed_ms),
            priced: Nanos::from_millis(busy_ms * price),
            rates: rate.into(),
            rates_squared: u64::from(rate).pow(2),
            rate_min: Some(rate),
        }
    }

    #[test]
    fn the_hope_of_all_is_that_of_the_model_of_a_mean_request_by_the_price_of_slack() {
        let company = model(900, 3000, 1800, 2).and(model(100, 1000, 600, 1));
        // 820 items per second, and 7 / 4 GPUs.
        let expected_s = HOPE_GAPS / (820.0 * 1.75 * 1.75);
        assert!((company.hope_max().as_secs_f64() - expected_s).abs() < 1e-9, "{:?}", company.hope_max());
        let cheap = Company { priced: Nanos::from_millis(2000), ..company };
        assert!((cheap.hope_max().as_secs_f64() - HOPE_GAPS / 410.0).abs() < 1e-9, "{:?}", cheap.hope_max());
        let often = (0..20).fold(Company::default(), |sum, _| sum.and(company));
        assert_eq!(often.hope_max(), company.hope_max(), "told twenty times");
    }

    #[test]
    fn an_even_pool_is_left_to_its_queues() {
        assert_eq!(Company::default().hope_max(), Nanos::MAX);
        assert_eq!(model(900, 3000, 1800, 2).hope_max(), Nanos::MAX);
        // 90 · 2 against (100² · 9 + 60²) / 960.
        let even = (0..9).fold(model(60, 600, 400, 2), |sum, _| sum.and(model(100, 1000, 600, 2)));
        assert_eq!(even.hope_max(), Nanos::MAX);
        let uneven = (0..9).fold(model(40, 400, 300, 2), |sum, _| sum.and(model(100, 1000, 600, 2)));
        assert!(uneven.hope_max() < Nanos::MAX);
    }

    #[test]
    fn where_fixed_costs_are_the_smaller_part_slack_is_worth_more() {
        let company = |fixed_ms: u64| model(900, 3000, fixed_ms, 2).and(model(100, 1000, 500, 2));
        assert_eq!(company(1490).hope_max(), Nanos::MAX);
        assert!(company(1510).hope_max() < Nanos::MAX);
    }

    #[test]
    fn no_numbers_are_too_large_or_too_small() {
        let most = Company {
            busy: Nanos::MAX,
            fixed: Nanos::MAX,
            priced: Nanos::MAX,
            rates: u64::MAX,
            rates_squared: u64::MAX,
            rate_min: Some(0),
        };
        assert!(most.and(most).hope_max() < Nanos::MAX);
        let nothing_asked = Company { rate_min: Some(0), ..Company::default() };
        assert_eq!(nothing_asked.hope_max(), Nanos::MAX);
        let free = Company { priced: Nanos::ZERO, ..model(900, 3000, 1800, 2).and(model(100, 1000, 600, 1)) };
        assert_eq!(free.hope_max(), Nanos::MAX, "slack costs nothing");
        let idle = Company { rates: 10, rates_squared: 100, ..nothing_asked };
        assert_eq!(idle.hope_max(), Nanos::MAX, "no batches");
    }
}
