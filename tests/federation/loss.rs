//! A whole cluster dies, and comes back.

use symphony_tests::{TestFederation, phase};

#[test]
fn the_models_of_a_cluster_that_dies_are_served_by_the_other_one() {
    let mut federation = TestFederation::start("federation-loss").unwrap();
    federation.load_model("dear", "east", &["--value", "4"]);
    federation.load_model("plain", "east", &[]);
    // Two GPUs do some 1700 requests per second: each cluster has room for one of these, and for little beside it.
    federation.load_model("west", "west", &["--wanted-rps", "1000"]);
    federation.load_model("huge", "east", &["--wanted-rps", "1200"]);
    for model in ["dear", "plain", "west", "huge"] {
        federation.wait_until_it_serves(model);
    }
    let load = federation.spawn_load("load", "east", &["dear=40", "plain=40"]).unwrap();
    federation.wait_for_more(100);

    phase("every process of the east is killed");
    assert_eq!(federation.kill_all("east-").unwrap(), 2);
    for model in ["dear", "plain"] {
        federation.wait_for_model("a new home", model, |model| model["home"] == "west");
        federation.wait_until_it_serves(model);
    }
    assert_eq!(federation.cluster("east").unwrap()["reachable"], false);
    federation.wait_for_model("a word on what does not fit", "huge", |model| {
        model["unplaced"].as_str().is_some_and(|why| why.contains("GPUs of west/emulated"))
    });
    federation.one_good_request("west").unwrap();
    federation.wait_for_more(100);

    phase("the east comes back: what is there still is served, what moved is let go of");
    federation.restart_all("east-").unwrap();
    federation.wait_until_it_serves("huge");
    let settled =
        |model: &serde_json::Value| model["home"] == "west" && model["leftovers"].as_array().is_some_and(Vec::is_empty);
    for model in ["dear", "plain"] {
        federation.wait_for_model("the stale copy to go", model, settled);
        federation.one_good_request(model).unwrap();
    }
    federation
        .wait_for_model("nothing to say of it", "huge", |huge| huge["home"] == "east" && huge["unplaced"].is_null());

    phase("nothing was lost or answered twice; most requests after the loss were answered");
    // Until the cluster was held for lost, for six seconds, none was.
    federation.wait_for_more(1200);
    let report = federation.end_load(load).unwrap();
    report.check_safety().unwrap();
    report.check_bad_rate("total", 0.5).unwrap();
    federation.check_the_ledger();
}
