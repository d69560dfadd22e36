//! A policy's options are chosen where a model is loaded, act where it is led, and are shown.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use symphony_testkit::wait_until;
use symphony_tests::{Shape, TestCluster, emulated_model, numbers, phase, tell};

/// How long a report may take to come back from a backend, and a lead to another replica.
const WITHIN: Duration = Duration::from_secs(20);
const WAITS: &str = "{ name = \"timeout\", trigger = { timeout_ms = 150 } }";
/// Requests one after the other: each finds all GPUs idle.
const REQUESTS: usize = 4;

/// Sends requests one after the other; returns the cluster's explanations of the batches that served them.
fn served(cluster: &TestCluster, model: &str) -> Vec<Value> {
    let input = json!({ "name": "INPUT0", "datatype": "FP32", "shape": [1, 16], "data": numbers(7.0) });
    let body = json!({ "inputs": [input] });
    let one = |_| {
        let reply = cluster.block_on(async { cluster.rest().infer(model, &body).await }).unwrap();
        assert_eq!(reply.status, 200, "{reply:?}");
        let id = reply.request_id.expect("an answer names its request");
        // An answer may be here before its GPU has reported, and until then that GPU is not idle.
        wait_until(&format!("the batch of {id} to be reported"), WITHIN, || {
            let explanation = cluster.cli(&["explain", &id, "-o", "json"]).ended_with(0).json();
            anyhow::ensure!(explanation[0]["outcome"] == "in_time", "{explanation}");
            Ok(explanation[0].clone())
        })
        .unwrap()
    };
    (0..REQUESTS).map(one).collect()
}

fn gpus(batches: &[Value]) -> BTreeSet<&str> {
    batches.iter().map(|explanation| explanation["batch"]["gpu"]["name"].as_str().unwrap()).collect()
}

/// A batch waits as long as the policy prescribes; guard and lead come off the wait, not more.
fn check_waits(batches: &[Value]) {
    for explanation in batches {
        assert_eq!(explanation["policy"], WAITS, "{explanation}");
        let (waited, start) = (&explanation["batch"]["head_waited_ms"], &explanation["batch"]["planned"]["start_ms"]);
        assert!(waited.as_f64().unwrap() + start.as_f64().unwrap() > 100.0, "{explanation}");
    }
}

#[test]
fn options_of_a_policy_act_in_a_live_cluster_and_are_shown() {
    tell("policy-options", &Shape::emulated(&["default"]), |cluster| {
        phase("two models, each with a policy of its own");
        let policies = [("plain", "eager"), ("waits", "{name='timeout', trigger={timeout_ms=150.0}}")];
        for (model, policy) in policies {
            let mut args = emulated_model(model, "default");
            args.extend(["--policy", policy]);
            let _ = cluster.cli(&args).ended_with(0);
            cluster.wait_until_it_serves(model).unwrap();
        }

        phase("choices for experiments are refused");
        for (option, key) in [("gpu_choice = 'earliest_free'", "gpu_choice"), ("trigger = 'latest'", "trigger")] {
            let mut args = emulated_model("experiment", "default");
            let policy = format!("{{ name = 'auto', {option} }}");
            args.extend(["--policy", &policy]);
            let refused = cluster.cli(&args).ended_with(2).err;
            assert!(refused.contains(&format!("key `{key}`: expected")), "{refused}");
            assert!(refused.contains("`symphony sim` only"), "{refused}");
        }

        phase("the cluster shows them as they are written");
        let shown = cluster.cli(&["get", "models", "-o", "json"]).ended_with(0).json();
        let table = cluster.cli(&["get", "models"]).ended_with(0).out;
        for (model, policy) in [("plain", "eager"), ("waits", WAITS)] {
            let one = shown.as_array().unwrap().iter().find(|one| one["name"] == model).unwrap();
            assert_eq!(one["policy"], policy, "{one}");
            assert!(table.contains(policy), "{policy} is not in\n{table}");
        }

        phase("the lowest GPU serves who comes alone");
        let batches = served(cluster, "plain");
        assert_eq!(gpus(&batches).len(), 1, "{batches:?}");
        assert!(batches.iter().all(|explanation| explanation["batch"]["gpu"]["choice"] == "lowest_id"), "{batches:?}");

        phase("a batch waits as long as its policy says, and the explanation says by which");
        check_waits(&served(cluster, "waits"));
        let words = cluster.cli(&["explain", "--batch", "waits"]).ended_with(0).out;
        assert!(words.contains(&format!("policy    {WAITS}")), "{words}");

        phase("who leads next goes by the same policies");
        let (leader, _) = cluster.subcluster("default").unwrap().leader.unwrap();
        cluster.kill(&format!("scheduler-{}", leader.get())).unwrap();
        let next = |view: &symphony_protocol::view::View| {
            let led = view.subclusters.values().next()?.leader?;
            (led.0 != leader).then_some(())
        };
        cluster.wait_for_view("another leader", next).unwrap();
        cluster.wait_until_it_serves("waits").unwrap();
        check_waits(&served(cluster, "waits"));
    });
}
