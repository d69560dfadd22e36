//! What holds for the fluid bound of any problem.

use proptest::prelude::*;
use symphony_fleet::{FleetModel, FleetProblem, FluidBound, Kind, LatencyTable, Merging};

/// Up to three kinds with lines as latencies, one of which answers everything; two models with four sizes each.
fn problem() -> impl Strategy<Value = FleetProblem> {
    let line = (1.0..20.0_f64, 1.0..50.0_f64);
    let model = (prop::collection::vec(line, 3), prop::collection::vec(0.1..1.0_f64, 4), 60.0..300.0_f64);
    prop::collection::vec(model, 2).prop_map(|models| {
        let kind = |name: &str| Kind { name: name.to_owned(), price_per_hour: 1.0, count_max: 9 };
        let model = |(lines, shares, slo_ms): (Vec<(f64, f64)>, Vec<f64>, f64)| {
            let total: f64 = shares.iter().sum();
            let sizes = (1..=4).zip(shares.iter().map(|share| share / total)).collect();
            let table = |(alpha, beta): &(f64, f64)| {
                let points: Vec<_> = (1..=16).map(|items| (items, alpha * f64::from(items) + beta)).collect();
                LatencyTable::from_points(&points).unwrap()
            };
            FleetModel { name: String::new(), slo_ms, share: 0.5, sizes, latencies: lines.iter().map(table).collect() }
        };
        FleetProblem {
            budget_per_hour: 30.0,
            kinds: ["a", "b", "c"].into_iter().map(kind).collect(),
            models: models.into_iter().map(model).collect(),
        }
    })
}

/// Within rounding.
fn at_least(more: f64, less: f64) -> bool {
    more >= less * (1.0 - 1e-6)
}

proptest! {
    #[test]
    fn more_gpus_answer_no_less_and_twice_as_many_twice_as_much(
        problem in problem(), counts in prop::array::uniform3(0..6_u32), more in prop::array::uniform3(0..6_u32),
    ) {
        for merging in [Merging::Alone, Merging::Together] {
            let bound = FluidBound::new(&problem, merging);
            let (own, others) = (bound.rps(&counts), bound.rps(&more));
            let sum = [0, 1, 2].map(|kind| counts[kind] + more[kind]);
            // Fleets that share the work answer at least what they answer apart.
            prop_assert!(at_least(bound.rps(&sum), own + others), "{} {own} {others}", bound.rps(&sum));
            let twice = bound.rps(&counts.map(|count| 2 * count));
            prop_assert!(at_least(twice, 2.0 * own) && at_least(2.0 * own, twice), "{twice} {own}");
        }
    }

    #[test]
    fn merged_requests_cost_no_more(problem in problem(), counts in prop::array::uniform3(0..6_u32)) {
        let [alone, together] = [Merging::Alone, Merging::Together].map(|merging| FluidBound::new(&problem, merging));
        prop_assert!(at_least(together.rps(&counts), alone.rps(&counts)));
    }

    /// A plan that is easy to carry out: one kind serves everything.
    #[test]
    fn no_single_kind_beats_the_bound(problem in problem(), counts in prop::array::uniform3(1..6_u32)) {
        let bound = FluidBound::new(&problem, Merging::Alone).rps(&counts);
        for (kind, &count) in counts.iter().enumerate() {
            if problem.models.iter().any(|model| model.items_within(kind) < model.items_max()) {
                continue;
            }
            let mean_s: f64 = problem.models.iter().map(|model| model.share * model.mean_s(kind, model.items_max()).0).sum();
            prop_assert!(at_least(bound, f64::from(count) / mean_s));
        }
    }
}
