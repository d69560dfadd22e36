//! What clients ask for, by model, as the federation plans by it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use symphony_protocol::control::ModelRate;

/// Rates are averages that forget within this time: long enough for Poisson noise of slow models, short enough for a
/// plan.
const OVER: Duration = Duration::from_secs(30);
/// A frontend reports nothing before this time: what its clients ask for is not known, and half of them have not come
/// back after a restart. The federation notices after as long that its former boot is silent.
const KNOWN_AFTER: Duration = Duration::from_secs(10);
/// Models that are counted: as many as a federation may have.
const MODELS_MAX: usize = 4096;
/// Below this a model is forgotten.
const RATE_MIN_RPS: f64 = 1e-3;

#[derive(Debug)]
struct Counts {
    /// Requests since `at`, and the average before it: of all time, as if there had been no request before `begun`.
    models: BTreeMap<String, (u64, f64)>,
    begun: Instant,
    at: Instant,
}

/// Counts requests as they arrive.
#[derive(Debug)]
pub(crate) struct Rates(Mutex<Counts>);

impl Rates {
    pub(crate) fn begin(now: Instant) -> Self {
        Self(Mutex::new(Counts { models: BTreeMap::new(), begun: now, at: now }))
    }

    pub(crate) fn arrived(&self, model: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((count, _)) = counts.models.get_mut(model) {
            *count += 1;
        } else if counts.models.len() < MODELS_MAX {
            counts.models.insert(model.to_owned(), (1, 0.0));
        }
    }

    #[cfg(test)]
    pub(crate) fn counted(&self, model: &str) -> u64 {
        self.0.lock().unwrap().models.get(model).map_or(0, |(count, _)| *count)
    }

    /// The averages now, over the time that is counted already; none while that is too short.
    pub(crate) fn each(&self, now: Instant) -> Option<Vec<ModelRate>> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (age, seconds) = (now.saturating_duration_since(counts.begun), now.saturating_duration_since(counts.at));
        if age < KNOWN_AFTER || seconds.is_zero() {
            return None;
        }
        counts.at = now;
        let seconds = seconds.as_secs_f64();
        let kept = (-seconds / OVER.as_secs_f64()).exp();
        for (count, average) in counts.models.values_mut() {
            *average = *average * kept + (std::mem::take(count) as f64 / seconds) * (1.0 - kept);
        }
        counts.models.retain(|_, (_, average)| *average >= RATE_MIN_RPS);
        // A time that was not counted is no silence.
        let counted = 1.0 - (-age.as_secs_f64() / OVER.as_secs_f64()).exp();
        let rate =
            |(model, &(_, average)): (&String, &(u64, f64))| ModelRate { model: model.clone(), rps: average / counted };
        Some(counts.models.iter().map(rate).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_found_and_silence_is_forgotten() {
        let mut now = Instant::now();
        let rates = Rates::begin(now);
        for _ in 0..120 {
            (0..50).for_each(|_| rates.arrived("m"));
            now += Duration::from_secs(1);
            rates.each(now);
        }
        let found = rates.each(now + Duration::from_millis(1)).unwrap()[0].rps;
        assert!((found / 50.0 - 1.0).abs() < 0.03, "{found}");
        now += Duration::from_secs(1000);
        assert_eq!(rates.each(now), Some(vec![]));
    }

    #[test]
    fn who_has_just_begun_says_nothing_and_then_no_less_than_it_sees() {
        let begun = Instant::now();
        let rates = Rates::begin(begun);
        for second in 1..60 {
            (0..50).for_each(|_| rates.arrived("m"));
            let Some(known) = rates.each(begun + Duration::from_secs(second)) else {
                assert!(second < KNOWN_AFTER.as_secs(), "{second}");
                continue;
            };
            assert!(second >= KNOWN_AFTER.as_secs(), "{second}: {known:?}");
            assert!((known[0].rps / 50.0 - 1.0).abs() < 0.03, "after {second} s: {known:?}");
        }
    }
}
