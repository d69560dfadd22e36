//! Two versions of a model share its requests, in the cluster that serves them.

use symphony_tests::{TestFederation, phase};

#[test]
fn a_cluster_splits_what_it_serves_and_its_split_does_not_outlive_a_move() {
    let federation = TestFederation::start("federation-canary").unwrap();
    for version in ["v@1", "v@2"] {
        federation.load_model(version, "east", &[]);
        federation.wait_until_it_serves(version);
    }
    federation.wait_for_version("v", "2");

    phase("the east gives all to the first version");
    federation.cli_of("west", &["model", "traffic", "v", "1=1"]).ended_with(2).complains(&["v@1"]);
    let _ = federation.cli_of("east", &["model", "traffic", "v", "1=1"]).ended_with(0);
    federation.wait_for_version("v", "1");

    phase("both move: the latest gets all again, until the west splits");
    let moved = ["plan", "move", "--model", "v@1", "--model", "v@2", "--to-cluster", "west"];
    let _ = federation.cli(&moved).ended_with(0);
    federation.wait_for_version("v", "2");
    let _ = federation.cli_of("west", &["model", "traffic", "v", "1=1"]).ended_with(0);
    federation.wait_for_version("v", "1");
    federation.check_the_ledger();
}
