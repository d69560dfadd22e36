//! All disks of the top-level group are lost, and a backup is restored. Clusters and the frontend run on.

use std::fs;

use serde_json::json;
use symphony_tests::{ProgramOutput, TestFederation, phase, run};

const REPLICAS: [&str; 3] = ["federation-1", "federation-2", "federation-3"];

/// `symphony restore` of that file for the first replica.
fn restore(federation: &TestFederation, file: &str) -> ProgramOutput {
    let config = federation.workspace.file("federation-1.toml").display().to_string();
    run(federation.workspace.path(), &[], &["restore", "--from", file, "--config", &config]).unwrap()
}

#[test]
fn a_federation_without_disks_is_restored_and_a_frontend_that_runs_on_follows_it() {
    let mut federation = TestFederation::start("federation-backup").unwrap();
    federation.load_model("kept", "east", &[]);
    federation.wait_until_it_serves("kept");

    phase("a backup, which says whose it is");
    let file = federation.workspace.file("world.backup").display().to_string();
    let taken = federation.cli(&["backup", "--to", &file, "-o", "json"]).ended_with(0).json();
    assert_eq!((&taken["federation"], &taken["confirmed"]), (&json!("world"), &json!(true)), "{taken}");
    assert_eq!((&taken["models"], &taken["clusters"]), (&json!(["kept"]), &json!(["east", "west"])), "{taken}");
    let shown = run(federation.workspace.path(), &[], &["backup", "--show", &file]).unwrap().ended_with(0);
    assert!(shown.out.contains("federation world") && shown.out.contains("2 clusters"), "{shown:?}");
    federation.cli(&["upgrade", "show"]).ended_with(2).complains(&["have no level"]);

    phase("after it, the model moves and another one is loaded");
    let _ = federation.cli(&["plan", "move", "--model", "kept", "--to-cluster", "west"]).ended_with(0);
    federation.load_model("later", "east", &[]);
    federation.wait_until_it_serves("later");
    let before = federation.console().unwrap()["federation"]["plan"].as_u64().unwrap();

    phase("nothing is restored while a replica runs, or over data");
    restore(&federation, &file).ended_with(2).complains(&["a replica of the federation still takes connections"]);
    assert_eq!(federation.kill_all("federation-").unwrap(), 3);
    restore(&federation, &file).ended_with(2).complains(&["is not empty"]);
    for name in REPLICAS {
        fs::remove_dir_all(federation.data_dir(name)).unwrap();
    }

    phase("it is restored on one replica; the others start over nothing");
    let output = restore(&federation, &file).ended_with(0).out;
    assert!(output.contains("is lost") && output.contains("Start n1 now. Then n2, n3"), "{output}");
    federation.restart_all("federation-").unwrap();
    federation.wait_for_model("a home", "kept", |model| model["home"].is_string() && model["moves_to"].is_null());
    federation.wait_until_it_serves("kept");
    assert!(federation.model("later").is_err(), "it was loaded after the backup");
    let events = federation.view().unwrap()["events"].to_string();
    assert!(events.contains("restored from a backup"), "{events}");

    phase("the frontend, which ran on, goes by the new plan, and what is loaded again is taken over where it is");
    federation.load_model("later", "east", &[]);
    federation.wait_until_it_serves("later");
    symphony_testkit::wait_until("the new plan", std::time::Duration::from_secs(60), || {
        let now = federation.console()?["federation"]["plan"].as_u64().unwrap_or(0);
        anyhow::ensure!(now > before + 1_000_000, "plan {now} after {before}");
        Ok(())
    })
    .unwrap();
    federation.check_the_ledger();
}
