//! The leader of the control group dies.

use symphony_tests::{emulated_model, phase};

use super::two_subclusters;

/// Seconds of load; the kill comes when the first hundred requests have been accepted.
const LOAD_S: u32 = 8;

#[test]
fn the_data_plane_serves_on_while_the_control_group_elects() {
    two_subclusters("control-leader", |cluster| {
        let view = cluster.view().unwrap();
        let victim = view.control_leader.unwrap();
        let led: Vec<_> = view.subclusters.values().filter(|s| s.leader.is_some_and(|(n, _)| n == victim)).collect();
        assert!(led.is_empty(), "{victim} leads the control group, and {led:?} besides");

        phase("load; then the leader of the control group is killed");
        let accepted = cluster.accepted().unwrap();
        let load = cluster.spawn_load("load", &["first=40", "second=40"], LOAD_S).unwrap();
        cluster.wait_for_accepted(accepted + 100).unwrap();
        let process = format!("scheduler-{}", victim.get());
        cluster.kill(&process).unwrap();

        phase("another replica leads the control group, and says so");
        cluster
            .wait_for_view("another leader of the control group", |view| {
                view.control_leader.filter(|leader| *leader != victim && !view.nodes[&victim].up)
            })
            .unwrap();

        phase("no request was lost, hardly one was late");
        let report = cluster.load_report(load, LOAD_S).unwrap();
        report.check_safety().unwrap();
        report.check_bad_rate("first", 0.05).unwrap();
        report.check_bad_rate("second", 0.05).unwrap();

        phase("the control group decides again: a model is loaded, another one unloaded");
        let _ = cluster.cli(&emulated_model("third", "first")).ended_with(0);
        cluster.wait_until_it_serves("third").unwrap();
        let _ = cluster.cli(&["model", "unload", "third"]).ended_with(0);

        phase("the killed replica catches up");
        cluster.restart(&process).unwrap();
        cluster.wait_until_whole().unwrap();
        cluster.one_good_request("first").unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
    });
}
