//! What clients ask for, as frontends report it. In the leader's memory only: a new leader hears it again within a second.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A frontend that was not heard of for this long has gone.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);
/// Frontends that report.
const FRONTENDS_MAX: usize = 4096;
/// Models in one report.
const MODELS_MAX: usize = symphony_federation_state::MODELS_MAX;

/// Requests per second of one model that count; more is nonsense, and must not spoil the sums.
pub(crate) const WANTED_RPS_MAX: f64 = symphony_federation_state::WANTED_MRPS_MAX as f64 / 1000.0;

/// One frontend's last word.
#[derive(Debug)]
struct Reported {
    at: Instant,
    rates: BTreeMap<String, f64>,
}

#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<BTreeMap<String, Reported>>);

impl Rates {
    pub(crate) fn report(&self, frontend: String, rates: impl Iterator<Item = (String, f64)>, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, reported| now.saturating_duration_since(reported.at) < FORGOTTEN_AFTER);
        if all.len() < FRONTENDS_MAX || all.contains_key(&frontend) {
            let sane = |(_, rps): &(String, f64)| rps.is_finite() && *rps >= 0.0;
            all.insert(frontend, Reported { at: now, rates: rates.filter(sane).take(MODELS_MAX).collect() });
        }
    }

    /// Requests per second by model, over all frontends.
    pub(crate) fn all(&self, now: Instant) -> BTreeMap<String, f64> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sums = BTreeMap::new();
        for reported in all.values().filter(|r| now.saturating_duration_since(r.at) < FORGOTTEN_AFTER) {
            for (model, rps) in &reported.rates {
                let sum: &mut f64 = sums.entry(model.clone()).or_default();
                *sum = (*sum + rps).min(WANTED_RPS_MAX);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_frontends_add_up_and_a_silent_one_is_forgotten() {
        let (rates, now) = (Rates::default(), Instant::now());
        let later = now + FORGOTTEN_AFTER / 2;
        rates.report("a".into(), [("m".to_owned(), 2.0), ("n".to_owned(), f64::NAN)].into_iter(), now);
        rates.report("b".into(), [("m".to_owned(), 3.0)].into_iter(), now);
        assert_eq!(rates.all(now), BTreeMap::from([("m".to_owned(), 5.0)]));
        rates.report("b".into(), [("m".to_owned(), 4.0)].into_iter(), later);
        assert_eq!(rates.all(later + FORGOTTEN_AFTER / 2), BTreeMap::from([("m".to_owned(), 4.0)]));
        for frontend in ["a", "b"] {
            rates.report(frontend.into(), [("m".to_owned(), 1e300)].into_iter(), later);
        }
        assert_eq!(rates.all(later), BTreeMap::from([("m".to_owned(), WANTED_RPS_MAX)]), "nonsense is cut");
    }
}
