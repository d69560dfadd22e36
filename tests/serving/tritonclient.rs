//! tritonclient, unmodified, against a whole cluster.

use std::path::Path;
use std::process::{Command, Stdio};

use symphony_tests::{Shape, emulated_model, onnxruntime_is_here, phase, tell};

use super::digits_file::load_digits;

#[test]
fn tritonclient_is_content_with_a_whole_cluster() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let python = root.join(".cache/venv/bin/python");
    assert!(python.exists(), "{} is missing; run `make setup-tests` once", python.display());
    let with_digits = onnxruntime_is_here();
    let shape = Shape::emulated(&["default"]).with("frontend.request_bytes_max=1048576");
    let shape = if with_digits { shape.with_cpu() } else { shape };
    tell("tritonclient", &shape, |cluster| {
        phase("an emulated model and, with ONNX Runtime, the digits");
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        if with_digits {
            load_digits(cluster);
        }
        cluster.wait_until_it_serves("resnet").unwrap();

        phase("health, metadata, answers, accuracy and refusals, over gRPC and HTTP");
        let mut client = Command::new(&python);
        client.arg(root.join("tests/clients/tritonclient_cluster.py"));
        client.args(["--grpc", &cluster.address("frontend", "grpc"), "--http", &cluster.address("frontend", "rest")]);
        client.args(["--emulated", "resnet"]);
        if with_digits {
            client.arg("--digits").arg(root.join("deploy/models/digits/digits-test.bin"));
        }
        let output = client.stdin(Stdio::null()).output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "tritonclient is not content:\n{text}");
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(cluster.ended().unwrap(), None);
    });
}
