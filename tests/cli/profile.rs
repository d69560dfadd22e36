//! `symphony profile` and `symphony model generate`.

use symphony_executor::FamilyFile;
use symphony_executor::profile::ProfileFile;
use symphony_testkit::Workspace;
use symphony_tests::{alone, onnxruntime_is_here, run};

#[test]
fn a_generated_model_is_the_same_every_time_and_can_be_profiled() {
    let _alone = alone();
    let workspace = Workspace::new("profile").unwrap();
    let symphony = |args: &[&str]| run(workspace.path(), &[], args).unwrap();
    let output = symphony(&["model", "generate", "mlp", "mlp.onnx"]).ended_with(0);
    assert!(output.out.contains("mlp.onnx") && output.out.contains("parameters"), "{}", output.out);
    let _ = symphony(&["model", "generate", "mlp", "again.onnx", "--seed", "1"]).ended_with(0);
    let _ = symphony(&["model", "generate", "mlp", "other.onnx", "--seed", "2"]).ended_with(0);
    let bytes = |name| std::fs::read(workspace.file(name)).unwrap();
    assert!(bytes("mlp.onnx") == bytes("again.onnx") && bytes("mlp.onnx") != bytes("other.onnx"));
    let _ = symphony(&["model", "generate", "mlp", "head.onnx", "--head", "7"]).ended_with(0);
    assert_ne!(bytes("mlp.onnx"), bytes("head.onnx"));
    let cuts = |name| FamilyFile::read(&workspace.file(name)).unwrap().cuts().unwrap();
    assert!(cuts("head.onnx").iter().any(|cut| cuts("mlp.onnx").contains(cut)), "they share what comes before");
    let _ = symphony(&["model", "generate", "bert", "no.onnx", "--head", "7"]).ended_with(2).complains(&["mlp only"]);
    let _ = symphony(&["model", "generate", "mlp", "flat.onnx", "--hidden", "1"]).ended_with(0);
    assert!(bytes("flat.onnx").len() < bytes("mlp.onnx").len() / 2, "the second layer is the largest");
    let _ = symphony(&["model", "generate", "bert", "no.onnx", "--hidden", "1"]).ended_with(2).complains(&["mlp only"]);
    let _ =
        symphony(&["model", "generate", "mlp", "no.onnx", "--hidden", "0"]).ended_with(2).complains(&["hidden is 0"]);
    if !onnxruntime_is_here() {
        return;
    }

    let output = symphony(&["profile", "mlp.onnx", "--batch-max", "4", "--gpu-kind", "cpu-test"]).ended_with(0);
    assert!(
        ["BATCH", "MEDIAN", "P99", "fit:", "R\u{b2}"].iter().all(|word| output.out.contains(word)),
        "{}",
        output.out
    );
    let profile = ProfileFile::read(&workspace.file("mlp.profile.toml")).unwrap();
    assert_eq!(profile.model, "mlp");
    let gpu = &profile.gpus["cpu-test"];
    assert_eq!(gpu.latency.batch_max(), 4);
    assert!(gpu.latency.table().is_sorted() && gpu.static_memory_bytes > 0, "{gpu:?}");

    let again =
        ["profile", "mlp.onnx", "--batch-max", "4", "--gpu-kind", "cpu-test", "--out", "again.toml", "-o", "json"];
    let json = symphony(&again).ended_with(0).json();
    let written = ProfileFile::read(&workspace.file("again.toml")).unwrap();
    let gpu = &written.gpus["cpu-test"];
    let raised: Vec<u32> = serde_json::from_value(json["raised_batches"].clone()).unwrap();
    assert_eq!(raised, gpu.raised_batches, "the file and the output tell the same repair");
    assert_eq!((&json["model"], &json["written_to"]), (&"mlp".into(), &"again.toml".into()));
    let batches = json["batches"].as_array().unwrap();
    assert_eq!(batches.len(), 4, "{json}");
    for (batch, row) in (1_u32..).zip(batches) {
        assert_eq!(
            (&row["batch"], &row["latency_ms"]),
            (&batch.into(), &gpu.latency.latency(batch).as_millis_f64().into())
        );
        let below = row["measured_ms"].as_f64() < row["latency_ms"].as_f64();
        assert_eq!(below, raised.contains(&batch), "only what was measured faster is raised: {json}");
    }

    let hasty = ["profile", "mlp.onnx", "--batch-max", "4", "--slo-ms", "0.000001"];
    let _ = symphony(&hasty).ended_with(2).complains(&["one item takes longer than allowed"]);
    let _ = symphony(&["profile", "mlp.onnx", "--batch-max", "0"]).ended_with(2).complains(&["batch"]);
}

#[test]
fn two_profiles_are_compared_and_a_slower_one_can_fail_a_build() {
    let _alone = alone();
    let workspace = Workspace::new("profile-compare").unwrap();
    let write = |name: &str, kind: &str, latency_ms: &str| {
        let tensor = |which| format!("[[{which}]]\nname = \"x\"\ndata_type = \"FP32\"\nitem_shape = [4]\n");
        let gpu = format!(
            "[gpu.{kind}]\nstatic_memory_bytes = 8388608\ndynamic_memory_bytes = 0\nlatency_ms = {latency_ms}\n"
        );
        let text = format!("format = 1\nmodel = \"m\"\n{}{}{gpu}", tensor("inputs"), tensor("outputs"));
        std::fs::write(workspace.file(name), text).unwrap();
    };
    write("before.toml", "a100", "[2.0, 4.0]");
    write("now.toml", "a100", "[2.0, 5.0, 6.0]");
    write("other.toml", "t4", "[2.0]");
    let symphony = |args: &[&str]| run(workspace.path(), &[], args).unwrap();
    // The simulator and the partitioner read the same file.
    let scenario = "name = \"measured\"\npolicy = \"symphony\"\nduration_s = 1\nwarmup_s = 0\nseeds = [1]\n\
        [[gpu]]\nkind = \"a100\"\ncount = 1\n[[model]]\nname = \"m\"\nprofile = \"now.toml\"\nslo_ms = 25\n\
        [workload]\nrate_rps = 50\narrival = \"uniform\"\n";
    std::fs::write(workspace.file("measured.toml"), scenario).unwrap();
    let run = symphony(&["sim", "measured.toml", "-o", "json"]).ended_with(0).json();
    assert_eq!(run["runs"][0]["models"][0]["offered"], 50, "{run}");
    std::fs::write(workspace.file("stranger.toml"), scenario.replace("now.toml", "other.toml")).unwrap();
    let _ =
        symphony(&["sim", "stranger.toml"]).ended_with(2).complains(&["model.0.profile", "other.toml", "`a100`", "t4"]);
    let output = symphony(&["profile", "compare", "before.toml", "now.toml"]).ended_with(0);
    let words = ["GPU kind a100", "+25.0 %", "largest batch 2 -> 3", "static 8 -> 8 MB"];
    assert!(words.iter().all(|word| output.out.contains(word)), "{}", output.out);
    let json = symphony(&["profile", "compare", "before.toml", "now.toml", "-o", "json"]).ended_with(0).json();
    assert_eq!((&json["a100"]["slowest_ratio"], &json["a100"]["batch_max"][1]), (&1.25.into(), &3.into()));

    let strict = |percent: &'static str| ["profile", "compare", "before.toml", "now.toml", "--fail-above", percent];
    let _ = symphony(&strict("25")).ended_with(0);
    let _ = symphony(&strict("24")).ended_with(1).complains(&["25.0 % longer", "allowed are 24 %"]);
    let _ = symphony(&["profile", "compare", "before.toml", "other.toml"]).ended_with(2).complains(&["a100", "t4"]);
    let _ = symphony(&["profile"]).ended_with(2).complains(&["MODEL.onnx"]);
}
