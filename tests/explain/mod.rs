//! A cluster explains what became of single requests.

use std::time::Duration;

use serde_json::{Value, json};
use symphony_testkit::wait_until;
use symphony_tests::{Reply, Shape, TestCluster, emulated_model, numbers, phase, tell};

/// How long a report may take to come back from a backend.
const REPORTED_WITHIN: Duration = Duration::from_secs(60);
/// Less than the way back of an answer takes by the configuration (40 ms): no batch could serve such a request in time,
/// and there is time to refuse it.
const TOO_SHORT_US: u64 = 39_000;

/// One request.
fn ask(parameters: &Value) -> Value {
    let input = json!({ "name": "INPUT0", "datatype": "FP32", "shape": [1, 16], "data": numbers(7.0) });
    json!({ "inputs": [input], "parameters": parameters })
}

/// A request that could not be served in time, and was dropped before its deadline had passed.
fn dropped(cluster: &TestCluster) -> Reply {
    let body = ask(&json!({ "timeout": TOO_SHORT_US }));
    wait_until("a request to be dropped in time", REPORTED_WITHIN, || {
        let reply = cluster.block_on(async { cluster.rest().infer("resnet", &body).await })?;
        anyhow::ensure!((reply.status, reply.reason().as_str()) == (504, "slo_unreachable"), "{reply:?}");
        Ok(reply)
    })
    .unwrap()
}

/// The cluster's explanation, as soon as this is the outcome.
fn explained(cluster: &TestCluster, id: &str, outcome: &str) -> Value {
    wait_until(&format!("{id} to be {outcome}"), REPORTED_WITHIN, || {
        let reply = cluster.cli(&["explain", id, "-o", "json"]).ended_with(0).json();
        let [only] = reply.as_array().unwrap().as_slice() else { anyhow::bail!("{reply}") };
        anyhow::ensure!(only["outcome"] == outcome, "{only}");
        Ok(only.clone())
    })
    .unwrap()
}

#[test]
fn a_served_and_a_dropped_request_are_explained_by_their_ids() {
    tell("explain", &Shape::emulated(&["default"]), |cluster| {
        // A policy that waits, so that the explanation has a window.
        let deferred = [&emulated_model("resnet", "default")[..], &["--policy", "symphony"]].concat();
        let _ = cluster.cli(&deferred).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();

        phase("a request is served; its answer names it, and the cluster tells window, GPU and times");
        let body = ask(&json!({}));
        let reply = cluster.block_on(async { cluster.rest().infer_in_any_time("resnet", &body).await }).unwrap();
        assert_eq!(reply.status, 200, "{reply:?}");
        let id = reply.request_id.clone().expect("an answer names its request");
        let body: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(body["parameters"]["symphony_request_id"], id.as_str());
        let explanation = explained(cluster, &id, "in_time");
        assert_eq!(
            (&explanation["request"], &explanation["model"]),
            (&id.as_str().into(), &"resnet".into()),
            "{explanation}"
        );
        let batch = &explanation["batch"];
        assert_eq!((&batch["items"], &batch["gpu"]["choice"]), (&1.into(), &"lowest_id".into()), "{explanation}");
        assert_eq!(batch["planned"]["execution_ms"], 6.0, "one item takes 1 + 5 ms: {explanation}");
        assert!(batch["actual"]["execution_ms"].as_f64().unwrap() >= 5.0, "{explanation}");
        let window = &batch["window"];
        assert!(window["frontrun_ms"].as_f64().unwrap() <= window["latest_ms"].as_f64().unwrap(), "{explanation}");
        assert!(window["guard_ms"].as_f64().unwrap() > 0.0, "live leads start before the last moment: {explanation}");
        assert!(batch["members"].as_array().unwrap().contains(&id.as_str().into()), "{explanation}");
        let text = cluster.cli(&["explain", "request", &id]).ended_with(0).out;
        for expected in [
            "for resnet: ran in time",
            "its guard",
            "it was due, and found an idle GPU",
            "of backend-default",
            "predicted",
            "actual",
            "deadline",
        ] {
            assert!(text.contains(expected), "{expected} is not in:\n{text}");
        }

        phase("a request that nobody could serve in time is dropped, and the error names it too");
        let reply = dropped(cluster);
        let id = reply.request_id.expect("an error names its request");
        let explanation = explained(cluster, &id, "dropped");
        let story = &explanation["dropped"];
        assert_eq!(story["reason"], "slo_unreachable", "{explanation}");
        let (alone, due) = (story["alone_end_ms"].as_f64().unwrap(), story["must_end_by_ms"].as_f64().unwrap());
        assert!(alone >= 6.0 && due <= 0.0, "{explanation}");
        let text = cluster.cli(&["explain", &id]).ended_with(0).out;
        assert!(text.contains("even alone on an idle GPU it would end"), "{text}");

        phase("the last batches of a model");
        let last = cluster.cli(&["explain", "--batch", "resnet", "--last", "2", "-o", "json"]).ended_with(0).json();
        let last = last.as_array().unwrap();
        assert_eq!(last.len(), 2);
        assert_eq!(
            last[0]["batch"]["number"].as_u64().map(|number| number + 1),
            last[1]["batch"]["number"].as_u64(),
            "{last:?}"
        );

        phase("what nobody remembers is an error, what is no id a bad use");
        let unknown = id.rsplit_once('/').unwrap().0.to_owned() + "/999999";
        let _ = cluster.cli(&["explain", &unknown]).ended_with(1).complains(&[
            &unknown,
            "no leader remembers",
            "nor does its frontend",
        ]);
        let _ = cluster.cli(&["explain", "--batch", "nobody"]).ended_with(1).complains(&["there is no model `nobody`"]);
        let _ = cluster.cli(&["explain", "seventeen"]).ended_with(2).complains(&["`seventeen` is no request id"]);
        let _ = cluster.cli(&["explain"]).ended_with(2);
    });
}
