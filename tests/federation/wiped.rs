//! Replicas of the top-level group lose their disks.

use std::fs;

use symphony_tests::{TestFederation, phase};

const ONE: &str = "federation-1";
const OTHER: &str = "federation-2";
const THIRD: &str = "federation-3";
/// The log line of a replica that waits for others before it founds a group.
const WAITS: &str = "so no federation is founded";

#[track_caller]
fn ends_over_its_empty_disk(federation: &mut TestFederation, name: &str) {
    let (code, log) = federation.ends_by_itself(name).unwrap();
    assert!(code == Some(1) && log.contains("has an empty disk") && log.contains("the federation knows it"), "{log}");
}

#[test]
fn empty_disks_found_no_federation_beside_one_that_remembers() {
    let mut federation = TestFederation::start("federation-wiped").unwrap();
    federation.load_model("m", "east", &[]);

    phase("one loses its disk, and the others go on: it ends, and says why");
    federation.kill_all(ONE).unwrap();
    fs::remove_dir_all(federation.data_dir(ONE)).unwrap();
    federation.restart(ONE).unwrap();
    ends_over_its_empty_disk(&mut federation, ONE);
    assert_eq!(federation.model("m").unwrap()["home"], "east");

    phase("a second one does, and the third is down: the two wait, and say for whom");
    federation.kill_all("federation-").unwrap();
    fs::remove_dir_all(federation.data_dir(OTHER)).unwrap();
    let third = federation.replica_address(THIRD);
    for name in [ONE, OTHER] {
        federation.restart(name).unwrap();
    }
    for name in [ONE, OTHER] {
        federation.wait_for_log(name, WAITS).unwrap();
        federation.wait_for_log(name, &third).unwrap();
    }
    assert!(federation.view().is_err(), "a federation was founded beside the state of the third replica");

    phase("the third comes: the two end, and it has what it had");
    federation.restart(THIRD).unwrap();
    for name in [ONE, OTHER] {
        ends_over_its_empty_disk(&mut federation, name);
    }
    let stale = federation.cli(&["get", "clusters", "--stale", "-o", "json"]).ended_with(0).json();
    // The last entries may be committed without its knowledge: no process is left to tell it.
    let model = &stale["models"][0];
    assert_eq!(model["name"], "m", "{stale}");
    assert!([&model["home"], &model["moves_to"]].into_iter().any(|cluster| cluster == "east"), "{stale}");

    phase("all begin anew, each over an empty disk");
    federation.kill_all(THIRD).unwrap();
    fs::remove_dir_all(federation.data_dir(THIRD)).unwrap();
    federation.restart_all("federation-").unwrap();
    let _ = federation.leader();
    assert_eq!(federation.view().unwrap()["models"], serde_json::json!([]));
}
