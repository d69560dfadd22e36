//! Versions of a pipeline take over from each other under load.

use std::fs;

use serde_json::{Value, json};
use symphony_tests::{Shape, TestCluster, emulated_model, phase, tell};

use super::pipelines::{load, shown, write};

/// The repository has this version of the pipeline, and no other.
fn serve(cluster: &TestCluster, second: &str, slo_ms: f64, version: u64) {
    let _ = fs::remove_dir_all(cluster.workspace.file("models").join("both"));
    write(cluster, second, slo_ms, version);
}

/// The version that answers a request which names none, or this one.
fn version_of(cluster: &TestCluster, named: Option<&str>) -> Result<String, u16> {
    let input = json!({ "name": "IN", "datatype": "FP32", "shape": [1, 16], "data": vec![1.0; 16] });
    // In any time: one version takes most of what its SLO allows.
    let parameters = json!({ "symphony_exceed_slo": true, "timeout": 20_000_000 });
    let body = json!({ "inputs": [input], "parameters": parameters }).to_string();
    let headers: Vec<_> = named.map(|version| ("x-model-version", version)).into_iter().collect();
    let path = "/v2/models/both/infer";
    let reply = cluster.block_on(async { cluster.rest().post_with(path, &headers, body).await }).unwrap();
    if reply.status != 200 {
        return Err(reply.status);
    }
    let body: Value = serde_json::from_str(&reply.body).unwrap();
    Ok(body["model_version"].as_str().unwrap().to_owned())
}

/// The versions that the cluster has.
fn versions(cluster: &TestCluster) -> Vec<u64> {
    shown(cluster).as_array().unwrap().iter().map(|pipeline| pipeline["version"].as_u64().unwrap()).collect()
}

#[test]
fn versions_of_a_pipeline_take_over_from_each_other_and_no_request_fails() {
    tell("pipeline-rollout", &Shape::emulated(&["default", "other"]), |cluster| {
        for model in ["m", "n"] {
            let _ = cluster.cli(&emulated_model(model, "default")).ended_with(0);
        }
        serve(cluster, "n", 500.0, 1);
        let _ = load(cluster, &[]).ended_with(0);
        let running = cluster.spawn_load_until_ended("load", &["both=60"]).unwrap();
        cluster.wait_for_more(100).unwrap();

        for version in [2, 1] {
            phase(&format!("version {version} takes over, with another SLO"));
            serve(cluster, "n", 600.0 - 100.0 * version as f64, version);
            let output = load(cluster, &[]).ended_with(0);
            assert_eq!(output.out.trim(), format!("pipeline both is ready at version {version}"));
            assert!(output.err.contains(&format!("both@{} is unloaded", 3 - version)), "{}", output.err);
            assert_eq!(version_of(cluster, None), Ok(version.to_string()));
            assert_eq!(version_of(cluster, Some(&(3 - version).to_string())), Err(404));
            cluster.wait_for_more(50).unwrap();
            let left = cluster.wait_for_view("a view", |view| Some(view.traffic.clone())).unwrap();
            assert!(left.is_empty(), "a roll-out leaves no split behind: {left:?}");
        }

        phase("version 2 is tried out beside version 1");
        serve(cluster, "n", 450.0, 2);
        let output = load(cluster, &["--canary", "20,60", "--canary-step-s", "4", "--canary-bad-max", "0.5"]);
        let output = output.ended_with(0);
        for words in
            ["20 % to version 2", "40 % to version 1, 60 % to version 2", "both@2 is loaded", "both@1 is unloaded"]
        {
            assert!(output.err.contains(words), "{words}: {}", output.err);
        }
        assert_eq!((versions(cluster), version_of(cluster, None)), (vec![2], Ok("2".into())));
        let left = cluster.wait_for_view("a view", |view| Some(view.traffic.clone())).unwrap();
        assert!(left.is_empty(), "{left:?}");
        serve(cluster, "n", 500.0, 1);
        let _ = load(cluster, &[]).ended_with(0);

        phase("another one stands beside it, each can be named, and the traffic is split");
        serve(cluster, "n", 400.0, 2);
        let _ = load(cluster, &["--wait-s", "0"]).ended_with(0);
        cluster
            .wait_for_view("both ready", |view| {
                let ready = view.pipelines.values().filter(|pipeline| pipeline.is_ready(view)).count();
                (ready == 2).then_some(())
            })
            .unwrap();
        assert_eq!(versions(cluster), [1, 2]);
        let _ = cluster.cli(&["model", "traffic", "both", "1=1"]).ended_with(0);
        assert_eq!(cluster.cli(&["model", "traffic", "both"]).ended_with(0).out.trim(), "100 % to version 1");
        symphony_testkit::wait_until("the split at the frontend", std::time::Duration::from_secs(30), || {
            anyhow::ensure!(version_of(cluster, None) == Ok("1".into()), "the latest one answers");
            Ok(())
        })
        .unwrap();
        assert_eq!(version_of(cluster, Some("2")), Ok("2".into()));
        let shadow = ["model", "traffic", "both", "1=1", "--shadow", "2=50"];
        let _ = cluster.cli(&shadow).ended_with(2).complains(&["would ask every stage twice"]);
        let _ = cluster.cli(&["model", "traffic", "both", "7=1"]).ended_with(2).complains(&["named `both@7`"]);
        let _ = cluster.cli(&["pipeline", "unload", "both@1"]).ended_with(0);
        assert_eq!(versions(cluster), [2]);
        cluster.wait_for_more(50).unwrap();

        let report = cluster.end_load(running).unwrap();
        report.check_safety().unwrap();
        report.check_nothing_failed().unwrap();
        // Nor is any dropped or refused, but for what a busy machine does.
        report.check_served(0.1).unwrap();

        phase("version 3 asks a model that is too slow: it is rolled back, and version 2 serves on");
        let slow = ["--alpha-ms", "1", "--beta-ms", "300", "--batch-max", "1", "--slo-ms", "500"];
        let args = ["model", "load", "slow", "--emulated", "--subcluster", "other"];
        let _ = cluster.cli(&[&args[..], &slow].concat()).ended_with(0);
        let running = cluster.spawn_load_until_ended("load-2", &["both=60"]).unwrap();
        cluster.wait_for_more(100).unwrap();
        serve(cluster, "slow", 500.0, 3);
        let _ = load(cluster, &["--canary", "20", "--canary-step-s", "600"]).ended_with(2).complains(&[
            "version 3 got 20 % of the requests",
            "it gets none now",
            "stays split",
        ]);
        assert_eq!(versions(cluster), [2, 3], "it stays, to be examined");
        assert_eq!((version_of(cluster, None), version_of(cluster, Some("3"))), (Ok("2".into()), Ok("3".into())));
        let _ = cluster.cli(&["pipeline", "unload", "both@3"]).ended_with(0);
        let report = cluster.end_load(running).unwrap();
        report.check_safety().unwrap();
        assert!(report.number("both", "good").unwrap() > 100.0, "{}", report.json);
        cluster.wait_for_a_balanced_ledger().unwrap();
        let _ = cluster.cli(&["pipeline", "unload", "both"]).ended_with(0);
        assert_eq!(versions(cluster), [0_u64; 0]);
    });
}
