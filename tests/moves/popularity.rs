//! The load shifts, the epoch loop sees it, and models move under it without one failed request.

use symphony_protocol::epoch_plan_view::PlanStatus;
use symphony_protocol::view::View;
use symphony_tests::{Shape, emulated_model, phase, tell};

/// An epoch loop in a hurry.
pub(super) fn hasty() -> Shape {
    let shape = Shape::emulated(&["left", "right"]).with("scheduler.epochs.mode=adopt");
    shape.with("scheduler.epochs.period_s=600").with("scheduler.loop_speedup=10")
}

/// How many of the models are served by each sub-cluster.
fn shares(view: &View) -> (usize, usize) {
    let on = |name: &str| view.models.values().filter(|m| view.subclusters[&m.subcluster].name == name).count();
    (on("left"), on("right"))
}

#[test]
fn a_change_of_popularity_moves_models_under_load_and_none_is_unserved() {
    tell("popularity", &hasty(), |cluster| {
        // All are on the left: its GPU has everything to do and everything to hold.
        for model in ["one", "two", "three", "four"] {
            let _ = cluster.cli(&emulated_model(model, "left")).ended_with(0);
            cluster.wait_until_it_serves(model).unwrap();
        }
        let failed_before = cluster.failed().unwrap();
        let models = ["one=30", "two=30", "three=30", "four=30"];
        let load = cluster.spawn_load_until_ended("load", &models).unwrap();
        cluster.wait_for_more(100).unwrap();

        phase("the plan follows the load");
        cluster
            .wait_for_view("two models are on either side, and nothing is on its way", |view| {
                let right = view.subclusters.iter().find(|(_, s)| s.name == "right")?.0;
                let moved = view.models.values().filter(|m| m.subcluster == *right).count();
                let settled = view.models.values().all(|m| m.moving.is_none());
                (moved == 2 && settled).then_some(())
            })
            .unwrap();
        cluster.wait_for_more(500).unwrap();

        phase("what was done can be read, and asking again changes nothing");
        // The first plan may be of rates of the first moments, and then another mends it.
        cluster
            .wait_for_view("every plan is done, with two models on either side", |view| {
                let done = view.plans.iter().all(|plan| plan.status == PlanStatus::Done);
                (done && shares(view) == (2, 2)).then_some(())
            })
            .unwrap();
        let plans = cluster.view().unwrap().plans;
        assert!(plans[0].summary.contains("imbalance of rate"), "{plans:?}");

        phase("no request failed");
        let report = cluster.end_load(load).unwrap();
        report.check_safety().unwrap();
        for model in ["one", "two", "three", "four"] {
            report.check_bad_rate(model, 0.05).unwrap();
        }
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(cluster.failed().unwrap(), failed_before);
    });
}
