//! The digits model, measured and loaded as an operator would.

use symphony_executor::digits;
use symphony_tests::TestCluster;

/// Writes the model, profiles it and loads it as `digits` into sub-cluster `cpu`.
pub(crate) fn load_digits(cluster: &TestCluster) {
    std::fs::write(cluster.workspace.file("digits.onnx"), digits::MODEL).unwrap();
    let output = cluster.cli(&["profile", "digits.onnx", "--batch-max", "32"]).ended_with(0);
    assert!(output.out.contains("written to digits.profile.toml"), "{}", output.out);
    let mut load = vec!["model", "load", "digits", "--onnx", "digits.onnx", "--profile", "digits.profile.toml"];
    load.extend(["--slo-ms", "600", "--subcluster", "cpu"]);
    let output = cluster.cli(&load).ended_with(0);
    assert_eq!(output.out.trim(), "model digits is ready");
}
