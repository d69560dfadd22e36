//! All other replicas die: who leads serves on for a while, then stops cleanly, and resumes.

use std::time::{Duration, Instant};

use symphony_testkit::wait_until;
use symphony_tests::phase;

use super::two_subclusters;

/// Less than a leader serves on without the control group.
const SERVES_ON: Duration = Duration::from_millis(800);

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
        phase("the sub-cluster serves on");
        let mut good = 0;
        while killed.elapsed() < SERVES_ON {
            match cluster.one_good_request("first") {
                Ok(()) => good += 1,
                // A busy machine may answer late, or only when that time is over.
                Err(error) if killed.elapsed() < SERVES_ON => {
                    assert!(!error.to_string().contains("control_plane_lost"), "{error} after {:?}", killed.elapsed());
                }
                Err(_) => {}
            }
        }
        assert!(good > 0, "nothing was served");
        phase("then it stops, and says why");
        wait_until("a refusal", Duration::from_secs(30), || {
            let error = cluster.one_good_request("first").err().map(|e| e.to_string()).unwrap_or_default();
            anyhow::ensure!(error.contains("control_plane_lost"), "{error}");
            Ok(())
        })
        .unwrap();
        eprintln!("refused {} ms after the kill", killed.elapsed().as_millis());
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
