//! Processes are drained under load and stopped without one failed request.

use std::time::Duration;

use symphony_tests::{Shape, emulated_model, phase, tell};
use symphony_types::Duty;

const LOAD_S: u32 = 14;
/// A stopping process hands over its leads within five seconds; the rest allows for a busy machine.
const STOPS_WITHIN: Duration = Duration::from_secs(60);

/// One sub-cluster of two backends.
fn two_backends() -> Shape {
    let mut shape = Shape::emulated(&["first"]);
    let mut second = shape.backends[0].clone();
    second.name = "backend-other".into();
    shape.backends.push(second);
    shape
}

#[test]
fn backends_and_leaders_are_drained_and_no_request_fails() {
    tell("drain", &two_backends(), |cluster| {
        let _ = cluster.cli(&emulated_model("first", "first")).ended_with(0);
        cluster.wait_until_it_serves("first").unwrap();
        // A request may have come before the leader served.
        let failed_before = cluster.failed().unwrap();
        let accepted = cluster.accepted().unwrap();
        let load = cluster.spawn_load("load", &["first=80"], LOAD_S).unwrap();
        cluster.wait_for_accepted(accepted + 100).unwrap();

        phase("a backend is drained, stopped, and comes back");
        let output = cluster.cli(&["drain", "backend-other"]).ended_with(0);
        assert!(output.out.contains("is drained"), "{output:?}");
        assert_eq!(cluster.stop("backend-other", STOPS_WITHIN).unwrap().code(), Some(0));
        cluster.restart("backend-other").unwrap();
        cluster.wait_until_whole().unwrap();
        let duty = |cluster: &symphony_tests::TestCluster| {
            let view = cluster.view().unwrap();
            view.backends.values().find(|b| b.name == "backend-other").unwrap().duty
        };
        assert_eq!(duty(cluster), Duty::Draining, "what an operator said outlives a restart");
        let _ = cluster.cli(&["uncordon", "backend-other"]).ended_with(0);
        assert_eq!(duty(cluster), Duty::Serving);

        phase("the other backend is only told to stop: it drains by itself");
        assert_eq!(cluster.stop("backend-first", STOPS_WITHIN).unwrap().code(), Some(0));
        cluster.one_good_request("first").unwrap();

        phase("the leader is drained and gives everything away");
        let leader = cluster.subcluster("first").unwrap().leader.unwrap().0;
        let name = format!("scheduler-{}", leader.get());
        let _ = cluster.cli(&["drain", &name]).ended_with(0);
        assert_ne!(cluster.subcluster("first").unwrap().leader.unwrap().0, leader);
        let _ = cluster.cli(&["uncordon", &name]).ended_with(0);

        phase("so does the one that leads the control group, before it may be stopped");
        let leader = cluster.wait_for_view("a leader of the control group", |view| view.control_leader).unwrap();
        let name = format!("scheduler-{}", leader.get());
        let _ = cluster.cli(&["drain", &name]).ended_with(0);
        cluster.wait_for_view("another one leads it", |view| view.control_leader.filter(|&now| now != leader)).unwrap();
        let _ = cluster.cli(&["uncordon", &name]).ended_with(0);

        phase("no request failed");
        let report = cluster.load_report(load, LOAD_S).unwrap();
        report.check_safety().unwrap();
        report.check_bad_rate("first", 0.05).unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(cluster.failed().unwrap(), failed_before);
        eprintln!("longest gap: {} ms", report.json["total"]["longest_gap_ms"]);

        phase("a frontend that is cordoned answers 503 and says when to come again");
        let _ = cluster.cli(&["drain", "frontend"]).ended_with(0);
        let refused = cluster.block_on(async { cluster.rest().get("/v2/health/ready").await }).unwrap();
        assert_eq!(refused.status, 503, "{refused:?}");
        let error = cluster.one_good_request("first").unwrap_err().to_string();
        assert!(error.contains("draining"), "{error}");
        let _ = cluster.cli(&["uncordon", "frontend"]).ended_with(0);
        cluster.wait_until_it_serves("first").unwrap();

        phase("names that nobody bears are refused");
        cluster.cli(&["drain", "nobody"]).ended_with(2).complains(&["nobody", "scheduler-1", "backend-first"]);
    });
}
