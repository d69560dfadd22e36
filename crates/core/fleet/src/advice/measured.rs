//! A fleet problem from what is measured, instead of a file.

use std::collections::BTreeMap;

use symphony_types::{GPU_CLASSES_MAX, Nanos};

use super::Mix;
use crate::latency::LatencyTable;
use crate::problem::{FLEET_MODELS_MAX, FleetModel, FleetProblem, Kind};

/// A model as it is served.
#[derive(Clone, Debug, PartialEq)]
pub struct ServedModel {
    /// Its number in the mix.
    pub model: u32,
    /// Its name, for messages.
    pub name: String,
    /// From arrival to answer.
    pub slo: Nanos,
    /// Latencies by kind, in the order of the kinds.
    pub latencies: Vec<LatencyTable>,
}

/// The problem of answering this mix. Requests that no kind answers in time count as the largest that one does: no
/// fleet would help them. A model without requests needs a kind that would answer one of one item.
///
/// # Errors
/// If there are too many kinds or models, or if nothing of the mix can be answered; the message says what was expected.
pub fn measured_problem(
    budget_per_hour: f64,
    kinds: Vec<Kind>,
    models: Vec<ServedModel>,
    mix: &Mix,
) -> Result<FleetProblem, String> {
    if kinds.is_empty() || kinds.len() > GPU_CLASSES_MAX {
        return Err(format!(
            "expected 1 to {GPU_CLASSES_MAX} kinds of GPUs that have a price and serve all models, got {}",
            kinds.len()
        ));
    }
    let mut weighted: Vec<(FleetModel, f64)> = Vec::new();
    // By the kinds that answer them: one stands for all of these.
    let mut idle: BTreeMap<Vec<bool>, FleetModel> = BTreeMap::new();
    for ServedModel { model, name, slo, latencies } in models {
        let slo_ms = slo.get() as f64 / 1e6;
        let items_max = latencies.iter().map(|table| table.items_within(slo_ms)).max().unwrap_or(0);
        let requests = mix.of(model).map(|of| of.1 as f64).sum::<f64>();
        if items_max == 0 {
            continue;
        }
        if requests <= 0.0 {
            let answering = latencies.iter().map(|table| table.items_within(slo_ms) > 0).collect();
            idle.entry(answering).or_insert(FleetModel { name, slo_ms, share: 0.0, sizes: vec![(1, 1.0)], latencies });
            continue;
        }
        let mut sizes: Vec<(u32, f64)> = Vec::new();
        for (items, count) in mix.of(model) {
            let (items, share) = (items.min(items_max), count as f64 / requests);
            match sizes.last_mut() {
                Some(last) if last.0 == items => last.1 += share,
                _ => sizes.push((items, share)),
            }
        }
        weighted.push((FleetModel { name, slo_ms, share: 0.0, sizes, latencies }, requests));
    }
    if weighted.is_empty() || weighted.len() > FLEET_MODELS_MAX {
        let got = weighted.len();
        return Err(format!(
            "expected 1 to {FLEET_MODELS_MAX} models with requests that a kind with a price answers in time, got {got}"
        ));
    }
    let all: f64 = weighted.iter().map(|(_, requests)| requests).sum();
    let models = weighted.into_iter().map(|(model, requests)| FleetModel { share: requests / all, ..model });
    Ok(FleetProblem { budget_per_hour, kinds, models: models.chain(idle.into_values()).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_sizes_come_from_the_mix() {
        let table = |points: &[(u32, f64)]| LatencyTable::from_points(points).unwrap();
        let served = |model, name: &str, slo_ms| ServedModel {
            model,
            name: name.to_owned(),
            slo: Nanos::from_millis(slo_ms),
            latencies: vec![table(&[(1, 10.0), (6, 60.0)])],
        };
        let kinds = || vec![Kind { name: "k".to_owned(), price_per_hour: 1.0, count_max: 9 }];
        let mut mix = Mix::default();
        for (model, items, requests) in [(1, 1, 30), (1, 5, 20), (1, 6, 5), (1, 500, 5), (2, 1, 40), (3, 1, 900)] {
            mix.count(model, items, requests);
        }
        let models = || {
            let idle = [served(4, "idle", 50), served(5, "idle as well", 60)];
            [vec![served(1, "a", 50), served(2, "b", 50), served(3, "hopeless", 5)], idle.to_vec()].concat()
        };
        let problem = measured_problem(3.0, kinds(), models(), &mix).unwrap();
        assert_eq!(
            problem.models.iter().map(|model| (&model.name[..], model.share)).collect::<Vec<_>>(),
            [("a", 0.6), ("b", 0.4), ("idle", 0.0)]
        );
        // Requests above five items are late on every kind.
        assert_eq!(problem.models[0].sizes.len(), 2);
        assert_eq!(problem.models[0].items_max(), 5);
        assert!((problem.models[0].sizes[1].1 - 0.5).abs() < 1e-9);
        assert!(measured_problem(3.0, kinds(), models(), &Mix::default()).unwrap_err().contains("1 to 100 models"));
        assert!(measured_problem(3.0, Vec::new(), models(), &mix).unwrap_err().contains("kinds of GPUs"));
    }
}
