//! Requests by model and size, and what one of each costs a GPU of each kind: the terms of the fluid bound.

use crate::latency::LatencyTable;
use crate::problem::FleetProblem;

/// Whether requests may share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merging {
    /// Each runs alone, as in Kairos.
    Alone,
    /// As many as fit run together, as `auto` and all other policies of models have it.
    Together,
}

impl Merging {
    /// What holds under a policy, by its [`PolicySpec::merges`](symphony_workload::PolicySpec::merges).
    #[must_use]
    pub const fn of(policy_merges: bool) -> Self {
        if policy_merges { Self::Together } else { Self::Alone }
    }
}

/// Requests that are alike.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Class {
    /// Their share of all requests.
    pub(crate) share: f64,
    /// The least GPU time in seconds that one takes, by kind; infinite where it cannot be answered within the SLO.
    pub(crate) seconds: Vec<f64>,
}

/// All classes of the problem.
pub(crate) fn classes(problem: &FleetProblem, merging: Merging) -> Vec<Class> {
    let mut classes = Vec::new();
    for model in problem.models.iter().filter(|model| model.share > 0.0) {
        let per_item: Vec<Vec<f64>> = model.latencies.iter().map(|table| least_per_item(table, model.slo_ms)).collect();
        for &(items, share) in model.sizes.iter().filter(|size| size.1 > 0.0) {
            let seconds = (0..problem.kinds.len()).map(|kind| {
                if items > model.items_within(kind) {
                    return f64::INFINITY;
                }
                match merging {
                    Merging::Alone => model.latencies[kind].latency_ms(items) / 1e3,
                    Merging::Together => f64::from(items) * per_item[kind][items as usize - 1] / 1e3,
                }
            });
            classes.push(Class { share: model.share * share, seconds: seconds.collect() });
        }
    }
    classes
}

/// By n from 1 on: the least of ℓ(b) / b over batches b of at least n items within the SLO, in milliseconds.
fn least_per_item(table: &LatencyTable, slo_ms: f64) -> Vec<f64> {
    let within = table.items_within(slo_ms) as usize;
    let mut least = f64::INFINITY;
    let mut all: Vec<f64> = (1..=within)
        .rev()
        .map(|batch| {
            least = f64::min(least, table.all_ms()[batch - 1] / batch as f64);
            least
        })
        .collect();
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_costs_least_in_the_best_batch_that_holds_its_request() {
        // ℓ(b) / b: 10, 6, 5, 6.25.
        let table = LatencyTable::from_points(&[(1, 10.0), (2, 12.0), (3, 15.0), (4, 25.0)]).unwrap();
        assert_eq!(least_per_item(&table, 30.0), [5.0, 5.0, 5.0, 6.25]);
        assert_eq!(least_per_item(&table, 12.0), [6.0, 6.0]);
        assert!(least_per_item(&table, 9.0).is_empty());
    }
}
