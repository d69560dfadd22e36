//! One model becomes popular, and GPUs come to it by themselves, without one failed request.

use std::time::Duration;

use anyhow::ensure;
use symphony_protocol::epoch_plan_view::{MovedView, PlanStatus};
use symphony_protocol::view::View;
use symphony_testkit::wait_until;
use symphony_tests::{Shape, TestCluster, phase, tell};

use crate::moves::popularity::hasty;

const CALM_S: u32 = 8;

/// Two backends of one GPU on either side.
pub(super) fn four_backends() -> Shape {
    let mut shape = hasty().with("scheduler.epochs.period_s=5");
    shape.backends.iter_mut().for_each(|backend| backend.gpus = 1);
    for at in 0..2 {
        let mut more = shape.backends[at].clone();
        more.name.push_str("-more");
        shape.backends.push(more);
    }
    shape
}

/// A model that gains nothing by batches: a GPU runs 50 requests in a second.
pub(super) fn slow<'a>(name: &'a str, subcluster: &'a str) -> Vec<&'a str> {
    let mut args = vec!["model", "load", name, "--emulated", "--subcluster", subcluster];
    args.extend(["--alpha-ms", "20", "--beta-ms", "0", "--batch-max", "8", "--slo-ms", "1000"]);
    args
}

/// Backends of the left and of the right.
pub(super) fn backends(cluster: &TestCluster) -> (usize, usize) {
    let view = cluster.view().unwrap();
    let on = |name: &str| view.backends.values().filter(|b| view.subclusters[&b.subcluster].name == name).count();
    (on("left"), on("right"))
}

/// Backends where that model is served, once nothing is on its way.
fn settled_around(view: &View, model: &str) -> Option<usize> {
    let (_, model) = view.model_named(model)?;
    let settled =
        view.models.values().all(|m| m.moving.is_none()) && view.backends.values().all(|b| b.moving.is_none());
    settled.then(|| view.backends.values().filter(|b| b.subcluster == model.subcluster).count())
}

#[test]
fn gpus_follow_a_model_that_becomes_popular_and_no_request_fails() {
    tell("gpus", &four_backends(), |cluster| {
        let models = [("hot", "left"), ("a", "right"), ("b", "right"), ("c", "right")];
        for (model, subcluster) in models {
            let _ = cluster.cli(&slow(model, subcluster)).ended_with(0);
            cluster.wait_until_it_serves(model).unwrap();
        }
        let failed_before = cluster.failed().unwrap();

        phase("an even load moves no GPU");
        let load = cluster.spawn_load("calm", &["hot=30", "a=10", "b=10", "c=10"], CALM_S).unwrap();
        cluster.load_report(load, CALM_S).unwrap().check_safety().unwrap();
        assert_eq!(backends(cluster), (2, 2));

        phase("two GPUs are hardly enough for what is popular now: a third one comes");
        let load = cluster.spawn_load_until_ended("shifted", &["hot=98", "a=10", "b=10", "c=10"]).unwrap();
        cluster
            .wait_for_view("a backend has moved, and nothing is on its way", |view| {
                (settled_around(view, "hot") == Some(3)).then_some(())
            })
            .unwrap();

        phase("it stays, and no request failed");
        // Longer than until the loop plans again.
        cluster.wait_for_more(1000).unwrap();
        let view = cluster.view().unwrap();
        assert_eq!(settled_around(&view, "hot"), Some(3), "{view:?}");
        let plans = view.plans;
        let report = cluster.end_load(load).unwrap();
        report.check_safety().unwrap();
        for (model, _) in models {
            report.check_bad_rate(model, 0.05).unwrap();
        }
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(cluster.failed().unwrap(), failed_before);
        assert!(plans.iter().all(|plan| plan.status == PlanStatus::Done), "{plans:?}");
        // Models may have moved by the rates of the first moments, which mean little.
        let moved = plans.iter().flat_map(|plan| &plan.moves).filter(|one| matches!(one.what, MovedView::Backend(_)));
        assert_eq!(moved.count(), 1, "{plans:?}");
    });
}

#[test]
fn a_plan_that_an_operator_asked_for_is_in_the_log_with_the_name() {
    // One model is asked for more than any sub-cluster may decide: it is named, and the others are planned.
    let shape = hasty().with("scheduler.epochs.mode=off").with("scheduler.epochs.subcluster_rate_max_rps=45");
    tell("asked", &shape, |cluster| {
        for model in ["one", "two", "huge"] {
            let _ = cluster.cli(&slow(model, "left")).ended_with(0);
            cluster.wait_until_it_serves(model).unwrap();
        }
        let load = cluster.spawn_load_until_ended("load", &["one=15", "two=15", "huge=55"]).unwrap();
        // Rates are averages: they need a moment to follow the load.
        cluster.wait_for_more(1000).unwrap();
        // Until the leads have reported their load.
        let said = wait_until("a plan that runs", Duration::from_secs(120), || {
            let said = cluster.cli(&["plan", "now", "--adopt"]);
            ensure!(said.out.contains("runs"), "{said:?}");
            Ok(said)
        });
        let said = said.unwrap();
        assert!(said.out.contains("huge stays") && said.out.contains("what the rank worker takes"), "{said:?}");
        let events = cluster.cli(&["get", "events", "-o", "json"]).ended_with(0).json();
        let is_requested = |event: &&serde_json::Value| event["what"].to_string().contains("run a plan of 1 moves");
        let event = events.as_array().unwrap().iter().find(is_requested);
        assert_eq!(event.map(|event| &event["actor"]), Some(&"operator/admin".into()), "{events}");
        let shown = cluster.cli(&["plan", "show"]).ended_with(0);
        assert!(shown.out.contains("model huge stays where it is: "), "{shown:?}");
        let epochs = cluster.cli(&["get", "epochs", "-o", "json"]).ended_with(0).json();
        assert_eq!(epochs[0]["plans"][0]["left_alone"][0]["model"], "huge");
        cluster.end_load(load).unwrap().check_safety().unwrap();
    });
}
