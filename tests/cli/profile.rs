//! `symphony profile` and `symphony model generate`.

use symphony_executor::profile::ProfileFile;
use symphony_testkit::Workspace;
use symphony_tests::{alone, onnxruntime_is_here, run};

#[test]
fn a_generated_model_is_the_same_every_time_and_can_be_profiled() {
    let _alone = alone();
    let workspace = Workspace::new("profile").unwrap();
    let symphony = |args: &[&str]| run(workspace.path(), &[], args).unwrap();
    let said = symphony(&["model", "generate", "mlp", "mlp.onnx"]).ended_with(0);
    assert!(said.out.contains("mlp.onnx") && said.out.contains("parameters"), "{}", said.out);
    let _ = symphony(&["model", "generate", "mlp", "again.onnx", "--seed", "1"]).ended_with(0);
    let _ = symphony(&["model", "generate", "mlp", "other.onnx", "--seed", "2"]).ended_with(0);
    let bytes = |name| std::fs::read(workspace.file(name)).unwrap();
    assert!(bytes("mlp.onnx") == bytes("again.onnx") && bytes("mlp.onnx") != bytes("other.onnx"));
    if !onnxruntime_is_here() {
        return;
    }

    let said = symphony(&["profile", "mlp.onnx", "--batch-max", "4", "--gpu-kind", "cpu-test"]).ended_with(0);
    assert!(said.out.contains("BATCH") && said.out.contains("fit:"), "{}", said.out);
    let profile = ProfileFile::read(&workspace.file("mlp.profile.toml")).unwrap();
    assert_eq!(profile.model, "mlp");
    let gpu = &profile.gpus["cpu-test"];
    assert_eq!(gpu.latency.batch_max(), 4);
    assert!(gpu.latency.table().is_sorted() && gpu.static_memory_bytes > 0, "{gpu:?}");

    let _ = symphony(&["profile", "mlp.onnx", "--batch-max", "0"]).ended_with(2).complains(&["batch"]);
}
