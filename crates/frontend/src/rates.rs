//! What clients ask for, by model, as the federation plans by it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use symphony_protocol::control::ModelRate;

/// Rates are averages that forget within this time: long enough for Poisson noise of slow models, short enough for a plan.
const OVER: Duration = Duration::from_secs(30);
/// Models that are counted: as many as a federation may have.
const MODELS_MAX: usize = 4096;
/// Below this a model is forgotten.
const RATE_MIN_RPS: f64 = 1e-3;

#[derive(Debug, Default)]
struct Counts {
    /// Requests since `at`, and the average before it.
    models: BTreeMap<String, (u64, f64)>,
    at: Option<Instant>,
}

/// Counts requests as they arrive.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<Counts>);

impl Rates {
    pub(crate) fn arrived(&self, model: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((count, _)) = counts.models.get_mut(model) {
            *count += 1;
        } else if counts.models.len() < MODELS_MAX {
            counts.models.insert(model.to_owned(), (1, 0.0));
        }
    }

    /// The averages now.
    pub(crate) fn each(&self, now: Instant) -> Vec<ModelRate> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(since) = counts.at.replace(now).map(|at| now.saturating_duration_since(at)) else { return Vec::new() };
        let seconds = since.as_secs_f64();
        if seconds <= 0.0 {
            return Vec::new();
        }
        let kept = (-seconds / OVER.as_secs_f64()).exp();
        for (count, average) in counts.models.values_mut() {
            *average = *average * kept + (std::mem::take(count) as f64 / seconds) * (1.0 - kept);
        }
        counts.models.retain(|_, (_, average)| *average >= RATE_MIN_RPS);
        counts.models.iter().map(|(model, &(_, rps))| ModelRate { model: model.clone(), rps }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_found_and_silence_is_forgotten() {
        let (rates, mut now) = (Rates::default(), Instant::now());
        assert!(rates.each(now).is_empty());
        for _ in 0..120 {
            (0..50).for_each(|_| rates.arrived("m"));
            now += Duration::from_secs(1);
            rates.each(now);
        }
        let found = rates.each(now + Duration::from_millis(1))[0].rps;
        assert!((found / 50.0 - 1.0).abs() < 0.03, "{found}");
        now += Duration::from_secs(1000);
        assert!(rates.each(now).is_empty());
    }
}
