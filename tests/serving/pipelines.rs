//! Pipelines of emulated models, as an operator has them: loaded, budgeted, kept, rolled out and unloaded.

use std::fs;

use symphony_protocol::view::View;
use symphony_tests::{ProgramOutput, Shape, TestCluster, emulated_model, phase, tell};

/// Writes a pipeline of two steps, `m` then `n`.
pub(super) fn write(cluster: &TestCluster, second: &str, slo_ms: f64, version: u64) {
    let (input, output) =
        (symphony_executor::default_signature().inputs, symphony_executor::default_signature().outputs);
    let (input, output) = (&input[0], &output[0]);
    let dims = |shape: &[u32]| shape.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let config = format!(
        "platform: \"ensemble\" max_batch_size: 1
         input {{ name: \"IN\" data_type: TYPE_{} dims: [ {} ] }}
         output {{ name: \"OUT\" data_type: TYPE_{} dims: [ {} ] }}
         ensemble_scheduling {{ step [
           {{ model_name: \"m\" input_map {{ key: \"{i}\" value: \"IN\" }} output_map {{ key: \"{o}\" value: \"A\" }} }},
           {{ model_name: \"{second}\" input_map {{ key: \"{i}\" value: \"IN\" }} output_map {{ key: \"{o}\" value: \"OUT\" }} }}
         ] }}",
        input.data_type,
        dims(&input.item_shape),
        output.data_type,
        dims(&output.item_shape),
        i = input.name,
        o = output.name,
    );
    let dir = cluster.workspace.file("models").join("both");
    fs::create_dir_all(dir.join(version.to_string())).unwrap();
    fs::write(dir.join("config.pbtxt"), config).unwrap();
    // The second one is asked when the first has answered, and takes what clients send.
    let extras = format!("slo_ms = {slo_ms:.1}\n[[edge]]\nfrom = \"m\"\nto = \"{second}\"\n");
    fs::write(dir.join("pipeline.toml"), extras).unwrap();
}

pub(super) fn load(cluster: &TestCluster, more: &[&str]) -> ProgramOutput {
    cluster.cli(&[&["pipeline", "load", "both", "--repository", "models"], more].concat())
}

pub(super) fn shown(cluster: &TestCluster) -> serde_json::Value {
    cluster.cli(&["get", "pipelines", "-o", "json"]).ended_with(0).json()
}

#[test]
fn pipelines_are_loaded_budgeted_kept_rolled_out_and_unloaded() {
    tell("pipelines", &Shape::emulated(&["default"]), |cluster| {
        phase("what is not there is refused in words, and nothing is loaded");
        write(cluster, "n", 500.0, 1);
        let _ = load(cluster, &[]).ended_with(2).complains(&["step.0.model_name", "`m`, which is not loaded"]);
        for model in ["m", "n"] {
            let _ = cluster.cli(&emulated_model(model, "default")).ended_with(0);
        }
        write(cluster, "nobody", 500.0, 1);
        let _ = load(cluster, &[]).ended_with(2).complains(&["step.1.model_name", "`nobody`, which is not loaded"]);
        let _ = cluster
            .cli(&["model", "load", "both", "--repository", "models"])
            .ended_with(2)
            .complains(&["pipeline load"]);
        assert_eq!(shown(cluster), serde_json::json!([]));

        phase("it is loaded, and its budget is split");
        write(cluster, "n", 500.0, 1);
        assert_eq!(load(cluster, &[]).ended_with(0).out.trim(), "pipeline both is ready at version 1");
        let pipeline = shown(cluster)[0].clone();
        assert_eq!((pipeline["ready"].as_bool(), pipeline["slo_ms"].as_f64()), (Some(true), Some(500.0)));
        let budgets: f64 =
            pipeline["stages"].as_array().unwrap().iter().map(|stage| stage["budget_ms"].as_f64().unwrap()).sum();
        assert!((450.0..=500.0).contains(&budgets), "{pipeline}");
        let described = cluster.cli(&["describe", "pipeline", "both"]).ended_with(0).out;
        assert!(described.contains("m to n: 1.00 requests per result"), "{described}");

        phase("it keeps its models and its name");
        let _ = cluster.cli(&["model", "unload", "n"]).ended_with(2).complains(&["is asked by pipeline `both@1`"]);
        let _ = cluster.cli(&emulated_model("both", "default")).ended_with(2).complains(&["the name of model `both`"]);

        phase("another leader of the group has it, with its budgets");
        let agreed = |view: &View| view.pipelines.get("both@1")?.split.clone();
        let (leader, before) =
            cluster.wait_for_view("a leader of the group", |view| view.control_leader.zip(agreed(view))).unwrap();
        cluster.kill(&format!("scheduler-{}", leader.get())).unwrap();
        let after = cluster.wait_for_view("another one", |view| {
            view.control_leader.filter(|next| *next != leader).and_then(|_| agreed(view))
        });
        assert_eq!(after.unwrap().budgets_ns, before.budgets_ns);

        phase("a version that no split can meet is told and waits beside the one that serves");
        write(cluster, "n", 1.0, 2);
        let late = load(cluster, &["--wait-s", "1"]);
        let _ = late.ended_with(1).complains(&["warning: pipeline both", "is not ready after 1 s"]);
        let states: Vec<_> = shown(cluster).as_array().unwrap().iter().map(|one| one["ready"].as_bool()).collect();
        assert_eq!(states, [Some(true), Some(false)]);
        let _ = cluster.cli(&["pipeline", "unload", "both@2"]).ended_with(0);
        let late = load(cluster, &["--wait-s", "1", "--canary", "10"]);
        // The warning may be wrong, and is told when it was right.
        let _ = late.ended_with(1).complains(&["is not ready after 1 s", "before its budget can be split: "]);
        let _ = cluster.cli(&["model", "traffic", "both", "--clear"]).ended_with(0);

        phase("another one takes the place of both");
        write(cluster, "n", 300.0, 3);
        assert_eq!(load(cluster, &[]).ended_with(0).out.trim(), "pipeline both is ready at version 3");
        let described = cluster.cli(&["describe", "pipeline", "both"]).ended_with(0).out;
        assert!(described.starts_with("pipeline both@3") && described.contains("3; loaded: 3"), "{described}");

        phase("it goes, and its models may");
        let _ = cluster.cli(&["pipeline", "unload", "both"]).ended_with(0);
        assert_eq!(shown(cluster), serde_json::json!([]));
        let _ = cluster.cli(&["pipeline", "unload", "both"]).ended_with(2).complains(&["no pipeline is named `both`"]);
        let _ = cluster.cli(&["model", "unload", "n"]).ended_with(0);
    });
}
