//! The leader of a sub-cluster dies.

use symphony_tests::phase;

use super::two_subclusters;

/// Seconds of load; the kill comes when the first hundred requests have been accepted.
const LOAD_S: u32 = 8;

#[test]
fn a_dead_leader_is_replaced_under_a_larger_token_and_no_request_is_lost() {
    two_subclusters("takeover", |cluster| {
        let view = cluster.view().unwrap();
        let before = cluster.subcluster("first").unwrap();
        let other = cluster.subcluster("second").unwrap();
        let (victim, _) = before.leader.unwrap();
        assert_ne!(other.leader, before.leader, "two sub-clusters are led by two replicas: {view:?}");
        assert_ne!(
            view.control_leader,
            Some(victim),
            "the control group's leader leads no sub-cluster while others can"
        );

        phase("load on both sub-clusters");
        let accepted = cluster.accepted().unwrap();
        let load = cluster.spawn_load("load", &["first=40", "second=40"], LOAD_S).unwrap();
        cluster.wait_for_accepted(accepted + 100).unwrap();

        phase("the leader of the first is killed, as by a power cut");
        let process = format!("scheduler-{}", victim.get());
        cluster.kill(&process).unwrap();
        let (leader, token) = cluster
            .wait_for_view("another leader", |view| {
                let first = view.subclusters.values().find(|s| s.name == "first")?;
                first.leader.filter(|(node, _)| *node != victim).map(|(node, _)| (node, first.token))
            })
            .unwrap();
        assert!(token > before.token, "{leader} leads under {token}, no larger than {}", before.token);
        cluster.wait_until_it_serves("first").unwrap();

        phase("every request has its one answer; the other sub-cluster noticed nothing");
        let report = cluster.load_report(load, LOAD_S).unwrap();
        report.check_safety().unwrap();
        report.check_bad_rate("first", 0.6).unwrap();
        report.check_bad_rate("second", 0.05).unwrap();
        assert_eq!(cluster.subcluster("second").unwrap().token, other.token, "the other sub-cluster kept its leader");
        cluster.wait_for_a_balanced_ledger().unwrap();

        phase("the killed replica comes back, with a new boot, as a standby");
        let former_boot = view.nodes[&victim].boot;
        cluster.restart(&process).unwrap();
        cluster.wait_until_whole().unwrap();
        cluster
            .wait_for_view("the replica as a standby", |view| {
                let node = view.nodes.get(&victim).filter(|n| n.up && n.boot.is_some() && n.boot != former_boot)?;
                let standby = view.subclusters.values().all(|s| s.standbys.contains(&victim));
                standby.then(|| node.clone())
            })
            .unwrap();
        cluster.one_good_request("first").unwrap();
        cluster.one_good_request("second").unwrap();
    });
}
