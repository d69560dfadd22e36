//! A model repository with a good model and broken ones, through tritonclient, REST and the command line.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use symphony_executor::digits;
use symphony_testkit::wait_until;
use symphony_tests::{REPOSITORY_TOKEN, Shape, TestCluster, onnxruntime_is_here, phase, tell};

/// How long something may take on a busy machine.
const SOON: Duration = Duration::from_secs(120);
const CONFIG: &str = r#"
platform: "onnxruntime_onnx"
max_batch_size: 16
input [ { name: "pixels" data_type: TYPE_FP32 dims: [ 8, 8 ] reshape { shape: [ 64 ] } } ]
output [ { name: "label" data_type: TYPE_INT64 dims: [ ] }, { name: "probabilities" data_type: TYPE_FP32 dims: [ 10 ] } ]
version_policy { latest { num_versions: 2 } }
instance_group [ { kind: KIND_CPU } ]
dynamic_batching { preferred_batch_size: [ 8 ] }
parameters { key: "slo_ms" value { string_value: "600" } }
parameters { key: "subcluster" value { string_value: "cpu" } }
"#;

/// A version of a model in the cluster's repository.
fn write_version(cluster: &TestCluster, model: &str, version: u64, config: &str, onnx: &[u8]) {
    let dir = cluster.workspace.file("models").join(model);
    fs::create_dir_all(dir.join(version.to_string())).unwrap();
    fs::write(dir.join(version.to_string()).join("model.onnx"), onnx).unwrap();
    fs::write(dir.join("config.pbtxt"), config).unwrap();
    let profile = cluster.workspace.file("digits.profile.toml");
    if profile.exists() {
        fs::copy(profile, dir.join("profile.toml")).unwrap();
    }
}

/// The index as it is without showing a token: name, version, state, reason.
fn index(cluster: &TestCluster) -> Vec<(String, String, String, String)> {
    let reply = cluster.block_on(async { cluster.rest().post("/v2/repository/index", "").await }).unwrap();
    let body: Value = serde_json::from_str(&reply.body).unwrap();
    let entry = |entry: &Value| {
        ["name", "version", "state", "reason"].map(|key| entry[key].as_str().unwrap_or_default().to_owned()).into()
    };
    body.as_array().unwrap_or_else(|| panic!("{reply:?}")).iter().map(entry).collect()
}

fn states(cluster: &TestCluster) -> Vec<(String, String)> {
    index(cluster).into_iter().map(|(name, version, state, _)| (format!("{name}:{version}"), state)).collect()
}

fn expect_states(cluster: &TestCluster, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected.iter().map(|&(model, state)| (model.to_owned(), state.to_owned())).collect();
    wait_until(&format!("the states {expected:?}"), SOON, || {
        let states = states(cluster);
        anyhow::ensure!(states == expected, "{states:?}");
        Ok(())
    })
    .unwrap();
}

/// Waits until a version of the model answers like this: a frontend may learn of a load a moment after its caller.
fn expect_answer(cluster: &TestCluster, version: &str, expected: &Result<(String, i64), u16>) {
    wait_until(&format!("version `{version}` to answer {expected:?}"), SOON, || {
        let answer = ask(cluster, version);
        anyhow::ensure!(answer == *expected, "{answer:?}");
        Ok(())
    })
    .unwrap();
}

/// The label of the first digit by a version of the model, or the status of the refusal.
fn ask(cluster: &TestCluster, version: &str) -> Result<(String, i64), u16> {
    let digit = digits::test_set()[0];
    let pixels: Vec<_> = digit.pixels.iter().map(|&pixel| f32::from(pixel)).collect();
    let input = serde_json::json!({ "name": "pixels", "datatype": "FP32", "shape": [1, 8, 8], "data": pixels });
    let body = serde_json::json!({ "inputs": [input], "parameters": { "symphony_accept_late": true } }).to_string();
    let path = match version {
        "" => "/v2/models/digits/infer".to_owned(),
        version => format!("/v2/models/digits/versions/{version}/infer"),
    };
    // A leader may hear of a version a moment after its frontend, and a machine that pauses misses deadlines.
    let reply = wait_until("an answer or a refusal for good", SOON, || {
        let reply = cluster.block_on(async { cluster.rest().post(&path, body.clone()).await })?;
        anyhow::ensure!(![503, 504].contains(&reply.status), "{reply:?}");
        Ok(reply)
    })
    .unwrap();
    if reply.status != 200 {
        return Err(reply.status);
    }
    let body: Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(body["outputs"][0]["name"], "label", "outputs are in the order of the configuration: {body}");
    let label = body["outputs"][0]["data"][0].as_i64().unwrap();
    Ok((body["model_version"].as_str().unwrap().to_owned(), label))
}

fn tritonclient(cluster: &TestCluster, root: &Path) {
    let mut client = Command::new(root.join(".cache/venv/bin/python"));
    client.arg(root.join("tests/clients/tritonclient_repository.py"));
    client.args(["--grpc", &cluster.address("frontend", "grpc"), "--http", &cluster.address("frontend", "rest")]);
    client.args(["--token", REPOSITORY_TOKEN]);
    let output = client.stdin(Stdio::null()).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "tritonclient is not content:\n{text}");
}

#[test]
fn a_repository_with_a_good_model_and_broken_ones() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let python = root.join(".cache/venv/bin/python");
    assert!(python.exists(), "{} is missing; run `make setup-tests` once", python.display());
    if !onnxruntime_is_here() {
        return;
    }
    tell("repository", &Shape::emulated(&["default"]).with_cpu().with_repository(), |cluster| {
        phase(
            "a model of which one version is there, one that is noise, one whose configuration is for another server",
        );
        fs::write(cluster.workspace.file("digits.onnx"), digits::MODEL).unwrap();
        let _ = cluster.cli(&["profile", "digits.onnx", "--batch-max", "16"]).ended_with(0);
        write_version(cluster, "digits", 1, CONFIG, digits::MODEL);
        write_version(cluster, "noise", 1, CONFIG, &[7_u8; 5000]);
        write_version(cluster, "ensemble", 1, &format!("{CONFIG} ensemble_scheduling {{ }}"), digits::MODEL);
        let unavailable = "UNAVAILABLE";
        expect_states(cluster, &[("digits:1", unavailable), ("ensemble:", unavailable), ("noise:1", unavailable)]);
        let reason = index(cluster).into_iter().find(|entry| entry.0 == "ensemble").unwrap().3;
        assert!(reason.starts_with("cannot be served") && !reason.contains("config.pbtxt"), "{reason}");
        let words = "config.pbtxt, field `ensemble_scheduling`: is set; expected platform";
        cluster.wait_for_log("frontend", words).unwrap();

        phase("tritonclient loads what can be loaded, is told what cannot, and asks");
        tritonclient(cluster, &root);
        expect_states(cluster, &[("digits:1", "READY"), ("ensemble:", unavailable), ("noise:1", unavailable)]);
        for line in [
            "symphony_frontend_models{state=\"ready\"} 1",
            "symphony_frontend_models{state=\"unavailable\"} 1",
            "symphony_frontend_repository_calls_total{call=\"load\",outcome=\"refused\"}",
            "symphony_frontend_repository_calls_total{call=\"load\",outcome=\"failed\"}",
        ] {
            cluster.wait_for_metric("frontend", line).unwrap();
        }

        phase("the command line tells the same, and changes nothing that is as it shall be");
        let load = |model: &str| cluster.cli(&["model", "load", model, "--repository", "models"]);
        let output = load("digits").ended_with(0);
        assert_eq!(output.out.trim(), "model digits@1 is ready");
        assert!(
            output.err.contains("note: dynamic_batching.preferred_batch_size makes no difference"),
            "{}",
            output.err
        );
        let _ = load("noise").ended_with(2).complains(&["`noise@1` was not loaded", "noise/1/model.onnx"]);
        let _ = load("ensemble").ended_with(2).complains(&["ensemble_scheduling", "expected platform \"ensemble\""]);
        let _ = load("nope").ended_with(2).complains(&["has no model `nope`"]);

        phase("versions that come are served beside the old ones, as many as the policy says");
        let right = i64::from(digits::test_set()[0].label);
        let answered_by = |version: &str| Ok((version.to_owned(), right));
        let expect = |version: &str, expected| expect_answer(cluster, version, &expected);
        expect("", answered_by("1"));
        expect("2", Err(404));
        write_version(cluster, "digits", 2, CONFIG, digits::MODEL);
        assert_eq!(load("digits").ended_with(0).out.trim(), "model digits@1 is ready\nmodel digits@2 is ready");
        expect("1", answered_by("1"));
        expect("2", answered_by("2"));
        expect("", answered_by("2"));
        write_version(cluster, "digits", 10, CONFIG, digits::MODEL);
        assert_eq!(load("digits").ended_with(0).out.trim(), "model digits@2 is ready\nmodel digits@10 is ready");
        expect("", answered_by("10"));
        expect("2", answered_by("2"));
        // No version that the repository serves no more.
        expect("1", Err(404));

        phase("a version that cannot be loaded leaves the others alone");
        write_version(cluster, "digits", 11, CONFIG, &[7_u8; 5000]);
        let _ = load("digits").ended_with(2).complains(&["`digits@11` was not loaded"]);
        expect("", answered_by("10"));
        expect("2", answered_by("2"));
        fs::write(cluster.workspace.file("models/digits/11/model.onnx"), digits::MODEL).unwrap();
        assert_eq!(load("digits").ended_with(0).out.trim(), "model digits@10 is ready\nmodel digits@11 is ready");

        phase("a model goes with all its versions");
        let output = cluster.cli(&["model", "unload", "digits"]).ended_with(0);
        assert_eq!(output.out.trim(), "model digits@10 is unloaded\nmodel digits@11 is unloaded");
        expect("", Err(404));
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(cluster.ended().unwrap(), None);
    });
}
