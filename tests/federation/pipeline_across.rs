//! The stages of a pipeline are served by two clusters, and the leader of one of them dies.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use symphony_testkit::wait_until;
use symphony_tests::{TestFederation, phase};

const SOON: Duration = Duration::from_secs(60);

/// Both stages take what clients send; the second one is asked when the first has answered, and gives the answer.
const CONFIG: &str = r#"
platform: "ensemble"
max_batch_size: 1
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] }
output { name: "OUTPUT0" data_type: TYPE_UINT32 dims: [ 1 ] }
ensemble_scheduling { step [
  { model_name: "near" input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "SEEN" } },
  { model_name: "far" input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "OUTPUT0" } }
] }
"#;
/// Longer than a take-over.
const EXTRAS: &str = "slo_ms = 4000.0\n[[edge]]\nfrom = \"near\"\nto = \"far\"\n";

/// Which replica leads the only sub-cluster of the west.
fn leader_in_the_west(federation: &TestFederation) -> Result<u64> {
    let shown = federation.cli_of("west", &["get", "subclusters", "-o", "json"]);
    ensure!(shown.code == Some(0), "{shown:?}");
    shown.json()[0]["leader"].as_u64().context("nobody leads")
}

/// Waits until a replica of the west remembers a batch of the second stage's model, of which only the pipeline asks
/// anything there.
fn wait_for_a_batch_in_the_west(federation: &TestFederation) {
    wait_until("a batch of the second stage in the west", SOON, || {
        let told = federation.cli_of("west", &["explain", "--batch", "far"]);
        ensure!(told.code == Some(0), "{told:?}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_dead_leader_of_a_stage_in_another_cluster_loses_no_request() {
    let mut federation = TestFederation::start_with("federation-pipeline", [1, 3]).unwrap();
    phase("two models and a pipeline of them in the east");
    for model in ["near", "far"] {
        federation.load_model(model, "east", &[]);
        federation.wait_until_it_serves(model);
    }
    let dir = federation.workspace.file("models").join("both");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("config.pbtxt"), CONFIG).unwrap();
    fs::write(dir.join("pipeline.toml"), EXTRAS).unwrap();
    let load = ["pipeline", "load", "both", "--repository", "models", "--wait-s", "120"];
    let _ = federation.cli_of("east", &load).ended_with(0);
    federation.wait_until_it_serves("both");

    phase("the second stage's model moves to the west, and leaves the copy by which the budget is split");
    let moved = federation.cli(&["plan", "move", "--model", "far", "--to-cluster", "west"]).ended_with(0);
    assert!(moved.out.contains("far is at home in cluster west"), "{moved:?}");
    federation.wait_for_model("its copy in the east", "far", |far| far["leftovers"][0] == "east");
    let load = federation.spawn_load("load", "east", &["both=40"]).unwrap();
    federation.wait_for_more(50);
    wait_for_a_batch_in_the_west(&federation);

    phase("the leader that the second stage has in the west is killed");
    let victim = wait_until("a leader in the west", SOON, || leader_in_the_west(&federation)).unwrap();
    assert_eq!(federation.kill_all(&format!("west-scheduler-{victim}")).unwrap(), 1);
    wait_until("another leader in the west", SOON, || {
        let leader = leader_in_the_west(&federation)?;
        ensure!(leader != victim, "{victim} leads still");
        Ok(())
    })
    .unwrap();
    wait_for_a_batch_in_the_west(&federation);
    federation.wait_for_more(50);

    phase("every request has its one outcome; the pipeline goes, and the copy with it");
    let report = federation.end_load(load).unwrap();
    report.check_safety().unwrap();
    report.check_nothing_failed().unwrap();
    report.check_bad_rate("total", 0.1).unwrap();
    federation.one_good_request("both").unwrap();
    federation.wait_for_a_balanced_ledger();
    let _ = federation.cli_of("east", &["pipeline", "unload", "both"]).ended_with(0);
    let gone = |far: &serde_json::Value| far["leftovers"].as_array().is_some_and(Vec::is_empty);
    federation.wait_for_model("the copy to go", "far", gone);
    federation.one_good_request("far").unwrap();
}
