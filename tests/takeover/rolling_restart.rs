//! Every scheduler replica is restarted, one after the other, under load.

use std::time::Duration;

use symphony_tests::phase;

use super::two_subclusters;

const LOAD_S: u32 = 20;
/// A stopping process hands over within five seconds, and then releases its disk; the rest allows for a busy machine.
const STOPS_WITHIN: Duration = Duration::from_secs(60);

#[test]
fn replicas_restart_one_after_the_other_and_nobody_notices() {
    two_subclusters("rolling-restart", |cluster| {
        let accepted = cluster.accepted().unwrap();
        let load = cluster.spawn_load("load", &["first=40", "second=40"], LOAD_S).unwrap();
        cluster.wait_for_accepted(accepted + 100).unwrap();
        for id in 1..=3 {
            let process = format!("scheduler-{id}");
            phase(&format!("{process} is told to stop, hands over what it leads, and comes back"));
            let status = cluster.stop(&process, STOPS_WITHIN).unwrap();
            assert_eq!(status.code(), Some(0), "{process} ended with {status}");
            let view = cluster.view().unwrap();
            for subcluster in view.subclusters.values() {
                let leader = subcluster.leader.expect("handed over before it stopped").0;
                assert_ne!(leader.get(), id, "{subcluster:?}");
            }
            cluster.restart(&process).unwrap();
            cluster.wait_until_whole().unwrap();
        }

        phase("every request has its one answer, and hardly one is late");
        let report = cluster.load_report(load, LOAD_S).unwrap();
        report.check_safety().unwrap();
        report.check_nothing_failed().unwrap();
        for model in ["first", "second"] {
            report.check_bad_rate(model, 0.05).unwrap();
        }
        cluster.wait_for_a_balanced_ledger().unwrap();
        let ledger = cluster.cli(&["get", "ledger", "-o", "json"]).ended_with(0).json();
        assert_eq!(ledger["cluster"]["lost"], 0, "{ledger}");
        assert_eq!(ledger["cluster"]["counts"]["accepted"], ledger["frontends"][0]["counts"]["accepted"]);
        eprintln!("longest gaps: {}", report.json["total"]["longest_gap_ms"]);
    });
}
