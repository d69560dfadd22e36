//! Heads on one trunk are found by the backend that loads their files, agreed on, and shown; they answer through one
//! queue and one trunk as they do whole, whichever of them is unloaded and whichever leader dies. A model that is not
//! to share does not.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use symphony_executor::{BatchInputs, ModelExecutor as _, OnnxExecutor, OnnxOptions, load_runtime};
use symphony_protocol::view::View;
use symphony_testkit::wait_until;
use symphony_tests::{Shape, TestCluster, onnxruntime_is_here, phase, tell};
use symphony_zoo::{Architecture, Mlp, OnnxModel, mingled_head};

/// How long something may take on a busy machine.
const SOON: Duration = Duration::from_secs(120);
const HEADS: [&str; 4] = ["cat", "dog", "cow", "hen"];
/// What each is asked.
const ROW: [f32; 8] = [0.5, -0.25, 1.0, 0.0, 2.0, -1.0, 0.125, 0.75];
/// As in the comparison of a model with its parts.
const TOLERANCE: f64 = 1e-3;

/// A head of this trunk.
fn load(cluster: &TestCluster, name: &str, trunk: u64, head: u64, more: &[&str]) {
    let shape = Mlp { width_in: 8, width: 64, hidden: 3, classes: 4 };
    load_made(cluster, name, &Architecture::mlp_head(shape, trunk, head).unwrap(), more);
}

/// All models here are loaded with the profile of the first: their inputs and outputs are alike.
fn load_made(cluster: &TestCluster, name: &str, model: &OnnxModel, more: &[&str]) {
    let file = format!("{name}.onnx");
    model.write(&cluster.workspace.file(&file)).unwrap();
    let profile = cluster.workspace.file("heads.profile.toml");
    if !profile.exists() {
        let _ = cluster.cli(&["profile", &file, "--batch-max", "8"]).ended_with(0);
        std::fs::rename(cluster.workspace.file(&format!("{name}.profile.toml")), profile).unwrap();
    }
    let mut args = vec!["model", "load", name, "--onnx", &file, "--profile", "heads.profile.toml"];
    // Deferred, so that requests for several heads meet in a batch at any load.
    args.extend(["--slo-ms", "600", "--subcluster", "cpu", "--policy", "symphony"]);
    args.extend(more);
    assert_eq!(cluster.cli(&args).ended_with(0).out.trim(), format!("model {name} is ready"));
}

/// The family of each model by `get models`, sorted: none for those that share nothing.
fn families(cluster: &TestCluster) -> Vec<(String, Option<Vec<String>>)> {
    let output = cluster.cli(&["get", "models", "-o", "json"]).ended_with(0);
    let models: Value = serde_json::from_str(&output.out).unwrap();
    let family = |model: &Value| {
        let names = model["family"]["models"].as_array()?;
        Some(names.iter().map(|name| name.as_str().unwrap().to_owned()).collect())
    };
    let models = models.as_array().unwrap().iter();
    models.map(|model| (model["name"].as_str().unwrap().to_owned(), family(model))).collect()
}

/// What a head answers to the same numbers each time.
fn ask(cluster: &TestCluster, name: &str) -> Vec<f64> {
    let input = serde_json::json!({ "name": "input", "datatype": "FP32", "shape": [1, 8], "data": ROW });
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

/// What the whole model of its file answers, in this process.
fn whole(cluster: &TestCluster, name: &str) -> Vec<f64> {
    let path = cluster.workspace.file(&format!("{name}.onnx"));
    let mut model = OnnxExecutor::from_file(&load_runtime(None).unwrap(), &path, &OnnxOptions::default()).unwrap();
    let (input, mut outputs) = (ROW.map(f32::to_le_bytes).concat(), Vec::new());
    model.run(&BatchInputs { items: 1, tensors: &[&input], start: None }, &mut outputs).unwrap();
    outputs[0].as_chunks().0.iter().map(|&number| f64::from(f32::from_le_bytes(number))).collect()
}

/// Each of these heads answers as its whole model does.
fn assert_right(cluster: &TestCluster, names: &[&str]) {
    for name in names {
        let (answer, expected) = (ask(cluster, name), whole(cluster, name));
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()).max(1.0);
        assert_eq!(answer.len(), expected.len(), "{name}");
        assert!(answer.iter().zip(&expected).all(near), "{name}: {answer:?}, and whole {expected:?}");
    }
}

/// Batches that ran the trunk for rows of several heads.
fn mixed_batches(cluster: &TestCluster) -> anyhow::Result<f64> {
    let scraped = cluster.metrics_of("backend-cpu")?;
    let mut lines = scraped.lines();
    let count = lines.find_map(|line| line.strip_prefix("symphony_backend_mixed_batches_total "));
    Ok(count.context("no count of mixed batches")?.trim().parse()?)
}

/// Waits until this many more have run.
fn wait_for_mixed_batches(cluster: &TestCluster, more: f64) {
    let before = mixed_batches(cluster).unwrap();
    let ran = wait_until("batches of several heads", SOON, || {
        let now = mixed_batches(cluster)?;
        anyhow::ensure!(now >= before + more, "{now}, {before} before");
        Ok(())
    });
    ran.unwrap();
}

/// Waits until the backend has this many trunks in memory.
fn wait_for_trunks(cluster: &TestCluster, expected: usize) {
    let shown = wait_until("trunks in memory", SOON, || {
        let scraped = cluster.metrics_of("backend-cpu")?;
        let is_trunk = |line: &&str| {
            line.starts_with("symphony_backend_model_memory_bytes{model=\"trunk ") && line.contains("static")
        };
        let trunks = scraped.lines().filter(is_trunk).count();
        anyhow::ensure!(trunks == expected, "{trunks} trunks: {scraped}");
        Ok(())
    });
    shown.unwrap();
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
        assert_right(cluster, &HEADS);
        wait_for_trunks(cluster, 1);

        phase("three of them are asked at once: one queue, one trunk for rows of several");
        let three: Vec<_> = HEADS[..3].iter().map(|name| format!("{name}=100")).collect();
        let three: Vec<_> = three.iter().map(String::as_str).collect();
        let running = cluster.spawn_load_until_ended("load", &three).unwrap();
        wait_for_mixed_batches(cluster, 20.0);

        phase("the fourth goes, and nobody else notices");
        let _ = cluster.cli(&["model", "unload", HEADS[3]]).ended_with(0);
        wait_for_a_family_of(cluster, 3);
        wait_for_mixed_batches(cluster, 20.0);
        assert_right(cluster, &HEADS[..3]);
        let report = cluster.end_load(running).unwrap();
        report.check_safety().unwrap();
        report.check_nothing_failed().unwrap();

        phase("their leader is killed: no request is lost, and the next one has one queue again");
        let running = cluster.spawn_load_until_ended("load-2", &three).unwrap();
        wait_for_mixed_batches(cluster, 5.0);
        let (victim, _) = cluster.subcluster("cpu").unwrap().leader.unwrap();
        let process = format!("scheduler-{}", victim.get());
        cluster.kill(&process).unwrap();
        let other = |view: &View| {
            let cpu = view.subclusters.values().find(|subcluster| subcluster.name == "cpu")?;
            cpu.leader.filter(|(node, _)| *node != victim)
        };
        cluster.wait_for_view("another leader", other).unwrap();
        assert_right(cluster, &HEADS[..3]);
        wait_for_mixed_batches(cluster, 20.0);
        cluster.end_load(running).unwrap().check_safety().unwrap();
        cluster.restart(&process).unwrap();
        cluster.wait_until_whole().unwrap();

        phase("two whose rows depend on each other are found out, and served whole");
        let mingled = ["mingled-1", "mingled-2"];
        mingled.iter().zip(1..).for_each(|(name, head)| load_made(cluster, name, &mingled_head(3, head), &[]));
        cluster.wait_for_log("backend-cpu", "does not share that trunk: it is served whole").unwrap();
        let apart = |view: &View| {
            let mut models = view.models.values().filter(|model| mingled.contains(&model.spec.name.as_str()));
            models.all(|model| view.family_of(model).is_empty()).then_some(())
        };
        cluster.wait_for_view("no family of those", apart).unwrap();
        assert_right(cluster, &mingled);

        phase("one alone is no family, and whole again");
        for name in &HEADS[1..3] {
            let _ = cluster.cli(&["model", "unload", name]).ended_with(0);
        }
        wait_for_a_family_of(cluster, 0);
        assert!(families(cluster).iter().all(|(_, family)| family.is_none()));
        wait_for_trunks(cluster, 0);
        assert_right(cluster, &HEADS[..1]);
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(cluster.ended().unwrap(), None);
    });
}
