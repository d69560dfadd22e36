//! A model moves between clusters while requests come.

use symphony_tests::{TestFederation, phase};

#[test]
fn a_model_moves_between_clusters_under_load_and_no_request_fails() {
    let federation = TestFederation::start("federation-moves").unwrap();
    federation.load_model("wanders", "east", &[]);
    federation.load_model("stays", "east", &["--wanted-rps", "50"]);
    for model in ["wanders", "stays"] {
        federation.wait_until_it_serves(model);
    }
    let load = federation.spawn_load("load", "east", &["wanders=60", "stays=40"]).unwrap();
    federation.wait_for_more(100);

    phase("it moves, and its copy in the old cluster goes");
    let there = federation.cli(&["plan", "move", "--model", "wanders", "--to-cluster", "west"]).ended_with(0);
    assert!(there.out.contains("wanders is at home in cluster west"), "{there:?}");
    let gone = |model: &serde_json::Value| model["leftovers"].as_array().is_some_and(Vec::is_empty);
    federation.wait_for_model("the old copy to go", "wanders", gone);
    federation.wait_for_more(100);

    phase("the leader of the top-level group dies, and the model moves back");
    let leader = federation.leader();
    let mut federation = federation;
    assert_eq!(federation.kill_all(&format!("federation-{leader}")).unwrap(), 1);
    let back = federation.cli(&["plan", "move", "--model", "wanders", "--to-cluster", "east"]).ended_with(0);
    assert!(back.out.contains("wanders is at home in cluster east"), "{back:?}");
    federation.wait_for_model("the copy in the west to go", "wanders", gone);

    phase("no request failed, and the rates are known");
    let asked_for = |model: &serde_json::Value| model["measured_rps"].as_f64() > Some(1.0);
    federation.wait_for_model("what clients ask for, as frontends report it", "stays", asked_for);
    let report = federation.end_load(load).unwrap();
    report.check_safety().unwrap();
    report.check_nothing_failed().unwrap();
    federation.check_the_ledger();
}
