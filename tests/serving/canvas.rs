//! The pipeline of the sample repository: tritonclient loads it, and has digits found on pictures and recognised.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use symphony_executor::{canvas, digits};
use symphony_tests::{REPOSITORY_TOKEN, Shape, TestCluster, onnxruntime_is_here, phase, tell};

/// Time for a request, in place of the sample's: the answers matter here, and machines that are busy.
const SLO_MS: &str = "10000";

/// Copies what the sample repository has of a name, with more time and in the sub-cluster that has a CPU.
fn copy(cluster: &TestCluster, sample: &Path, name: &str, files: &[&str]) {
    let dir = cluster.workspace.file("models").join(name);
    fs::create_dir_all(&dir).unwrap();
    for file in files {
        let text = fs::read_to_string(sample.join(name).join(file)).unwrap();
        let text = text.replace("\"default\"", "\"cpu\"").replace("\"500\"", &format!("\"{SLO_MS}\""));
        let text = text.replace("slo_ms = 500.0", &format!("slo_ms = {SLO_MS}.0"));
        fs::write(dir.join(file), text).unwrap();
    }
}

#[test]
fn a_pipeline_of_real_models_finds_digits_and_recognises_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let python = root.join(".cache/venv/bin/python");
    assert!(python.exists(), "{} is missing; run `make setup-tests` once", python.display());
    if !onnxruntime_is_here() {
        return;
    }
    tell("canvas", &Shape::emulated(&["default"]).with_cpu().with_repository(), |cluster| {
        phase("the sample repository, with profiles of this machine");
        let sample = root.join("deploy/models/repository");
        let models = [("detect", canvas::DETECTOR, canvas::TRANSFORMS), ("digits", digits::MODEL, digits::TRANSFORMS)];
        for (name, model, transforms) in models {
            copy(cluster, &sample, name, &["config.pbtxt"]);
            let dir = cluster.workspace.file("models").join(name);
            fs::create_dir_all(dir.join("1")).unwrap();
            fs::write(dir.join("1/model.onnx"), model).unwrap();
            fs::write(dir.join("transforms.toml"), transforms).unwrap();
            let (onnx, out) = (format!("models/{name}/1/model.onnx"), format!("models/{name}/profile.toml"));
            let _ = cluster.cli(&["profile", &onnx, "--batch-max", "32", "--out", &out]).ended_with(0);
        }
        copy(cluster, &sample, "canvas", &["config.pbtxt", "pipeline.toml"]);

        phase("tritonclient loads the models and the pipeline, asks, and unloads it");
        let mut client = Command::new(&python);
        client.arg(root.join("tests/clients/tritonclient_pipeline.py"));
        client.args(["--grpc", &cluster.address("frontend", "grpc"), "--http", &cluster.address("frontend", "rest")]);
        client.args(["--token", REPOSITORY_TOKEN, "--digits"]).arg(root.join("deploy/models/digits/digits-test.bin"));
        let output = client.stdin(Stdio::null()).output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "tritonclient is not content:\n{text}");

        phase("every request has its one outcome, and no invariant was broken");
        cluster.wait_for_a_balanced_ledger().unwrap();
        let metrics = cluster.metrics_of("frontend").unwrap();
        for invariant in ["P1", "P2", "P3"] {
            let line = format!("symphony_invariant_violations_total{{invariant=\"{invariant}\"}} 0\n");
            assert!(metrics.contains(&line), "{invariant}");
        }
        assert_eq!(cluster.ended().unwrap(), None);
    });
}
