//! Whatever a file says, it is a problem or a refusal.

use proptest::prelude::*;
use symphony_fleet::{Bound, FleetProblem, rank};

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        (-10.0..1e3_f64).prop_map(|number| number.to_string()),
        prop::sample::select(vec!["0", "-1", "nan", "inf", "1e-300", "1e300", "true", "\"x\"", "4096"])
            .prop_map(str::to_owned),
    ]
}

proptest! {
    #[test]
    fn a_fleet_problem_is_ranked_or_refused(
        budget in number(), price in number(), slo in number(), mean in number(), sigma in number(),
        rows in prop::collection::vec((0..5000_u32, number()), 0..6), law in prop::sample::select(vec!["gaussian", "lognormal"]),
    ) {
        let text = format!(
            "budget_per_hour = {budget}\nslo_ms = {slo}\nlatency_csv = \"l\"\nitems = {{ {law} = {{ mean = {mean}, sigma = {sigma} }} }}\n\
             kind = [{{ name = \"a\", price_per_hour = {price}, count_max = 9 }}, {{ name = \"b\", price_per_hour = 1.0, count_max = 9 }}]"
        );
        let rows = rows.iter().flat_map(|(items, ms)| ["a", "b"].map(|kind| format!("{kind},{items},{ms}\n")));
        let csv = rows.fold("kind,items,latency_ms\n".to_owned(), |text, row| text + &row);
        if let Ok(problem) = FleetProblem::parse("f.toml", &text, &|_| Ok(csv.clone())) {
            for bound in [Bound::Kairos, Bound::Alone, Bound::Together] {
                if let Ok(ranking) = rank(&problem, bound) {
                    prop_assert!(ranking.fleets.iter().all(|fleet| fleet.bound_rps.is_finite() && fleet.bound_rps >= 0.0));
                    prop_assert!(problem.affordable(&ranking.chosen().counts));
                }
            }
        }
    }
}
