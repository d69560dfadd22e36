//! Two of three replicas lose their disks at once. The third has the state, and no quorum.

use std::fs;
use std::time::Duration;

use symphony_tests::{Shape, TestCluster, emulated_model, phase, tell};

const END_WITHIN: Duration = Duration::from_secs(60);
const ONE: &str = "scheduler-1";
const OTHER: &str = "scheduler-2";
const THIRD: &str = "scheduler-3";
/// The log line of a replica that waits for others before it founds a group.
const WAITS: &str = "so no cluster is founded";

/// A cluster that serves a model, all of whose replicas are killed, and two of whose disks are emptied.
fn two_wiped(test: &str, story: impl Fn(&mut TestCluster)) {
    tell(test, &Shape::emulated(&["first"]), |cluster| {
        let _ = cluster.cli(&emulated_model("first", "first")).ended_with(0);
        cluster.wait_until_it_serves("first").unwrap();
        for name in [ONE, OTHER, THIRD] {
            cluster.kill(name).unwrap();
        }
        for name in [ONE, OTHER] {
            fs::remove_dir_all(cluster.data_dir(name)).unwrap();
        }
        story(cluster);
    });
}

#[test]
fn two_empty_disks_found_nothing_while_the_third_replica_is_down_nor_when_it_comes() {
    two_wiped("two-wiped-one-down", |cluster| {
        phase("the two start: they wait, and say for whom");
        for name in [ONE, OTHER] {
            cluster.restart(name).unwrap();
        }
        for name in [ONE, OTHER] {
            cluster.wait_for_log(name, WAITS).unwrap();
            cluster.wait_for_log(name, &cluster.address(THIRD, "control")).unwrap();
        }
        assert!(cluster.view().is_err(), "a cluster was founded beside the state of the third replica");

        phase("the third comes: they end, and name what to do");
        cluster.restart(THIRD).unwrap();
        for name in [ONE, OTHER] {
            let (code, log) = cluster.ends_by_itself(name).unwrap();
            assert!(code == Some(1) && log.contains("has an empty disk") && log.contains("a new id"), "{code:?} {log}");
        }
    });
}

#[test]
fn two_empty_disks_found_nothing_beside_a_third_replica_that_is_up() {
    two_wiped("two-wiped-one-up", |cluster| {
        cluster.restart(THIRD).unwrap();
        for name in [ONE, OTHER] {
            cluster.restart(name).unwrap();
        }
        for name in [ONE, OTHER] {
            let (code, log) = cluster.ends_by_itself(name).unwrap();
            assert!(code == Some(1) && log.contains("has an empty disk") && log.contains("a new id"), "{code:?} {log}");
        }
    });
}

#[test]
fn who_has_lost_every_disk_starts_anew_with_all_of_them_empty() {
    two_wiped("all-wiped", |cluster| {
        cluster.restart(ONE).unwrap();
        cluster.wait_for_log(ONE, WAITS).unwrap();
        fs::remove_dir_all(cluster.data_dir(THIRD)).unwrap();
        for name in [OTHER, THIRD] {
            cluster.restart(name).unwrap();
        }
        cluster.wait_for_view("three replicas", |view| (view.nodes.len() == 3).then_some(())).unwrap();
        assert!(cluster.view().unwrap().models.is_empty());
        assert!(cluster.stop(ONE, END_WITHIN).unwrap().success());
    });
}
