//! All other replicas die: the leader serves on for a while, then stops cleanly, and resumes.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use symphony_testkit::wait_until;
use symphony_tests::phase;

use super::two_subclusters;

/// A leader serves on for two seconds (`relaxed`) from the last heartbeat that was acknowledged; the rest allows for a
/// busy machine.
const SERVED_FOR: Duration = Duration::from_millis(500);
/// Two seconds until no replica is in contact with a quorum any more (`relaxed`), and one until that is known of
/// replicas that do not answer; the rest allows for a busy machine.
const REFUSED_WITHIN: Duration = Duration::from_secs(15);

#[test]
fn a_leader_alone_serves_on_then_refuses_and_resumes() {
    two_subclusters("control-plane-down", |cluster| {
        let leader = cluster.subcluster("first").unwrap().leader.unwrap().0.get();
        let others: Vec<_> = (1..=3).filter(|id| *id != leader).map(|id| format!("scheduler-{id}")).collect();
        let second = cluster.subcluster("second").unwrap().leader.unwrap().0.get();
        phase("the other two are killed");
        for name in &others {
            cluster.kill(name).unwrap();
        }
        let killed = Instant::now();
        phase("the sub-cluster serves on; then it stops, and says why");
        let (mut good, mut served_for) = (0, Duration::ZERO);
        wait_until("a refusal", REFUSED_WITHIN, || {
            // A busy machine may also answer late.
            let error = match cluster.one_request_in_time("first") {
                Ok(()) => {
                    (good, served_for) = (good + 1, killed.elapsed());
                    bail!("it serves on");
                }
                Err(error) => error.to_string(),
            };
            ensure!(error.contains("control_plane_lost"), "{error}");
            Ok(())
        })
        .unwrap();
        eprintln!("refused {} ms after the kill; {good} were served before", killed.elapsed().as_millis());
        assert!(served_for >= SERVED_FOR, "{good} were served, the last {served_for:?} after the kill");
        assert_ne!(second, leader, "two sub-clusters are led by two replicas");

        phase("the others are back, and both sub-clusters serve");
        for name in &others {
            cluster.restart(name).unwrap();
        }
        cluster.wait_until_whole().unwrap();
        cluster.wait_until_it_serves("first").unwrap();
        cluster.wait_until_it_serves("second").unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
    });
}

#[test]
fn where_the_leader_is_gone_with_the_quorum_its_clients_hear_so() {
    two_subclusters("leader-and-quorum-gone", |cluster| {
        let leader = cluster.subcluster("first").unwrap().leader.unwrap().0.get();
        let gone: Vec<_> = [leader, leader % 3 + 1].map(|id| format!("scheduler-{id}")).into();
        phase("it and another one are killed");
        for name in &gone {
            cluster.kill(name).unwrap();
        }
        let (killed, mut unanswered) = (Instant::now(), 0);
        wait_until("the reason", REFUSED_WITHIN, || {
            let error = cluster.one_request_in_time("first").err().map(|error| error.to_string()).unwrap_or_default();
            unanswered += u32::from(error.contains("no_answer"));
            ensure!(error.contains("control_plane_lost"), "{error}");
            Ok(())
        })
        .unwrap();
        let refused_after = killed.elapsed().as_millis();
        eprintln!("refused {refused_after} ms after the kill; {unanswered} were told `no_answer` before");

        phase("they are back, and both sub-clusters serve");
        for name in &gone {
            cluster.restart(name).unwrap();
        }
        cluster.wait_until_whole().unwrap();
        cluster.wait_until_it_serves("first").unwrap();
        cluster.wait_until_it_serves("second").unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
    });
}
