//! Heads on one trunk are found by the backend that loads their files, agreed on, and shown; who does not want to share
//! does not.

use std::time::Duration;

use serde_json::Value;
use symphony_testkit::wait_until;
use symphony_tests::{Shape, TestCluster, onnxruntime_is_here, phase, tell};
use symphony_zoo::{Architecture, Mlp};

/// How long something may take on a busy machine.
const SOON: Duration = Duration::from_secs(120);
const HEADS: [&str; 4] = ["cat", "dog", "cow", "hen"];

/// A head of this trunk; all have one profile, since they are of one shape.
fn load(cluster: &TestCluster, name: &str, trunk: u64, head: u64, more: &[&str]) {
    let shape = Mlp { width_in: 8, width: 64, hidden: 3, classes: 4 };
    let file = format!("{name}.onnx");
    Architecture::mlp_head(shape, trunk, head).unwrap().write(&cluster.workspace.file(&file)).unwrap();
    let profile = cluster.workspace.file("heads.profile.toml");
    if !profile.exists() {
        let _ = cluster.cli(&["profile", &file, "--batch-max", "8"]).ended_with(0);
        std::fs::rename(cluster.workspace.file(&format!("{name}.profile.toml")), profile).unwrap();
    }
    let mut args = vec!["model", "load", name, "--onnx", &file, "--profile", "heads.profile.toml"];
    args.extend(["--slo-ms", "600", "--subcluster", "cpu"]);
    args.extend(more);
    assert_eq!(cluster.cli(&args).ended_with(0).out.trim(), format!("model {name} is ready"));
}

/// The family of each model by `get models`, sorted: none for those that share nothing.
fn families(cluster: &TestCluster) -> Vec<(String, Option<Vec<String>>)> {
    let said = cluster.cli(&["get", "models", "-o", "json"]).ended_with(0);
    let models: Value = serde_json::from_str(&said.out).unwrap();
    let family = |model: &Value| {
        let names = model["family"]["models"].as_array()?;
        Some(names.iter().map(|name| name.as_str().unwrap().to_owned()).collect())
    };
    let models = models.as_array().unwrap().iter();
    models.map(|model| (model["name"].as_str().unwrap().to_owned(), family(model))).collect()
}

/// What a head answers to the same numbers each time.
fn ask(cluster: &TestCluster, name: &str) -> Vec<f64> {
    let data = [0.5, -0.25, 1.0, 0.0, 2.0, -1.0, 0.125, 0.75];
    let input = serde_json::json!({ "name": "input", "datatype": "FP32", "shape": [1, 8], "data": data });
    let body = serde_json::json!({ "inputs": [input], "parameters": { "symphony_accept_late": true } }).to_string();
    let answer = wait_until("an answer", SOON, || {
        let path = format!("/v2/models/{name}/infer");
        let reply = cluster.block_on(async { cluster.rest().post(&path, body.clone()).await })?;
        anyhow::ensure!(reply.status == 200, "{reply:?}");
        Ok(serde_json::from_str::<Value>(&reply.body)?)
    });
    let answer = answer.unwrap();
    let numbers = answer["outputs"][0]["data"].as_array().unwrap_or_else(|| panic!("{answer}"));
    numbers.iter().map(|number| number.as_f64().unwrap()).collect()
}

fn wait_for_a_family_of(cluster: &TestCluster, members: usize) {
    let what = format!("a family of {members}");
    let found = cluster.wait_for_view(&what, |view| {
        let (_, model) = view.models.iter().find(|(_, model)| model.spec.name == HEADS[0])?;
        (view.family_of(model).len() == members).then_some(())
    });
    found.unwrap();
}

#[test]
fn heads_on_one_trunk_are_a_family_until_they_go() {
    if !onnxruntime_is_here() {
        return;
    }
    tell("families", &Shape::emulated(&["default"]).with_cpu(), |cluster| {
        phase("four heads on one trunk, the same that shares nothing, and a head on another trunk");
        HEADS.iter().zip(1..).for_each(|(name, head)| load(cluster, name, 1, head, &[]));
        load(cluster, "hermit", 1, 5, &["--own-trunk"]);
        load(cluster, "stranger", 2, 1, &[]);
        wait_for_a_family_of(cluster, HEADS.len());
        let all: Vec<_> = HEADS.iter().map(|name| (*name).to_owned()).collect();
        for (name, family) in families(cluster) {
            let expected = HEADS.contains(&name.as_str()).then(|| all.clone());
            assert_eq!(family, expected, "{name}");
        }
        let wide = cluster.cli(&["get", "models", "-o", "wide"]).ended_with(0).out;
        assert!(wide.contains("TRUNK") && wide.contains(" of 4"), "{wide}");
        let answers = HEADS.map(|name| ask(cluster, name));
        assert!(answers.iter().all(|answer| answer.len() == 4) && answers[0] != answers[1], "{answers:?}");

        phase("one goes, and the others are still one family");
        let _ = cluster.cli(&["model", "unload", HEADS[3]]).ended_with(0);
        wait_for_a_family_of(cluster, 3);
        phase("one alone is no family");
        for name in &HEADS[1..3] {
            let _ = cluster.cli(&["model", "unload", name]).ended_with(0);
        }
        wait_for_a_family_of(cluster, 0);
        assert!(families(cluster).iter().all(|(_, family)| family.is_none()));
        assert_eq!(ask(cluster, HEADS[0]), answers[0]);
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(cluster.ended().unwrap(), None);
    });
}
