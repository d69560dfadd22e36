//! An operator whose command had no answer gives it again.

use serde_json::Value;
use symphony_tests::{Shape, TestCluster, emulated_model, phase, tell};

const UNLOAD: &str = "00000000000000000000000000000001";

fn unload(cluster: &TestCluster, id: &str, model: &str) -> symphony_tests::ProgramOutput {
    cluster.cli(&["model", "unload", model, "--operation-id", id])
}

/// What operators asked for, by `get events`.
fn operations(cluster: &TestCluster) -> Vec<Value> {
    let events = cluster.cli(&["get", "events", "-o", "json"]).ended_with(0).json();
    events.as_array().unwrap().iter().filter(|event| event["actor"].is_string()).cloned().collect()
}

#[test]
fn a_command_that_is_given_again_is_done_once() {
    tell("operations", &Shape::emulated(&["default"]), |cluster| {
        phase("an unload; then somebody loads the model again, and the Raft leader dies");
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        let _ = unload(cluster, UNLOAD, "resnet").ended_with(0);
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        let leader = cluster.view().unwrap().control_leader.unwrap();
        cluster.kill(&format!("scheduler-{}", leader.get())).unwrap();

        phase("the unload is given once more: it was done, and it is not done again");
        let output = unload(cluster, UNLOAD, "resnet").ended_with(0);
        assert!(output.out.contains("model resnet is unloaded"), "{output:?}");
        assert!(cluster.view().unwrap().model_named("resnet").is_some(), "what was loaded since stays");

        phase("an id stands for one command");
        let reused = ["stands for another command", UNLOAD, "fresh id"];
        let _ = unload(cluster, UNLOAD, "other").ended_with(2).complains(&reused);
        let _ = unload(cluster, "17", "resnet").ended_with(2).complains(&["17", "32 hexadecimal digits"]);
        let absent = unload(cluster, &"f".repeat(32), "absent").ended_with(2);
        let _ = absent.complains(&["no model is named `absent`"]);

        phase("everybody can see who asked for what, and what came of it");
        let operations = operations(cluster);
        let seen: Vec<_> =
            operations.iter().map(|o| (o["what"].as_str().unwrap(), o["outcome"].as_str().unwrap())).collect();
        let expected = [
            ("load model resnet on sub-cluster default", "done"),
            ("unload model resnet", "done"),
            ("load model resnet on sub-cluster default", "done"),
            ("unload model other", "refused"),
            ("unload model absent", "refused"),
        ];
        assert_eq!(seen, expected);
        assert_eq!((&operations[1]["operation"], &operations[1]["actor"]), (&UNLOAD.into(), &"operator/admin".into()));
        assert_ne!(operations[0]["operation"], operations[2]["operation"], "fresh ids for who gives none");
        assert!(operations.iter().all(|o| o["at_unix_ms"].as_u64() > Some(1_500_000_000_000)), "{operations:?}");
        assert!(operations[4]["refusal"].as_str().is_some_and(|why| why.contains("absent")), "{operations:?}");
        let console = cluster.console().unwrap();
        let shown = console["events"].as_array().unwrap();
        assert!(shown.iter().any(|event| event["actor"] == "operator/admin"), "{console}");
    });
}
