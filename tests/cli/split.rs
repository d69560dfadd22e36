//! `symphony plan split`: a budget from a file, what the cost changes, and errors for impossible budgets.

use std::path::Path;

use serde_json::Value;
use symphony_testkit::Workspace;
use symphony_tests::{ProgramOutput, phase, run};

fn traffic() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/pipelines/traffic.toml");
    std::fs::read_to_string(path).unwrap()
}

fn split(workspace: &Workspace, rest: &[&str]) -> ProgramOutput {
    let args: Vec<_> = ["plan", "split"].iter().chain(rest).copied().collect();
    run(workspace.path(), &[], &args).unwrap()
}

/// GPUs in all, and (name, budget, batch, GPUs) of each stage.
fn read(split: &Value) -> (f64, Vec<(String, f64, u64, f64)>) {
    let stage = |stage: &Value| {
        let number = |key: &str| stage[key].as_f64().unwrap();
        (
            stage["name"].as_str().unwrap().to_owned(),
            number("budget_ms"),
            stage["batch"].as_u64().unwrap(),
            number("gpus"),
        )
    };
    (split["gpus"].as_f64().unwrap(), split["stages"].as_array().unwrap().iter().map(stage).collect())
}

#[test]
fn each_path_gets_the_slo_and_batches_fit_their_budgets() {
    let workspace = Workspace::new("split").unwrap();
    workspace.write("p.toml", &traffic()).unwrap();
    // Budgets by exhaustive search over the detector's milliseconds.
    for (cost, takes, gpus) in [("execution", 1.0, 4.011_713_124), ("waiting", 2.0, 4.451_555_556)] {
        phase(cost);
        let found = split(&workspace, &["p.toml", "--cost", cost, "-o", "json"]).ended_with(0).json();
        let (all, stages) = read(&found);
        assert!((all - gpus).abs() < 1e-6, "{all} GPUs, expected {gpus}");
        assert!((all - stages.iter().map(|stage| stage.3).sum::<f64>()).abs() < 1e-9, "{found}");
        let [(detect, one, ..), (cars, two, ..), (faces, three, ..)] = &stages[..] else { panic!("{found}") };
        assert_eq!([detect, cars, faces].map(String::as_str), ["detect", "cars", "faces"]);
        assert_eq!((one + two, one + three), (400.0, 400.0), "{found}");
        for ((_, budget, batch, _), (alpha, beta)) in stages.iter().zip([(15.0, 32.0), (1.2, 3.0), (3.0, 4.0)]) {
            assert!(takes * (alpha * *batch as f64 + beta) <= budget + 1e-9, "{found}");
        }
    }
    phase("by default the paper's, as a table");
    let output = split(&workspace, &["p.toml"]).ended_with(0);
    for words in
        ["STAGE", "RATE R/S", "BUDGET MS", "detect", "300.0", "GPUs for 200 requests per second within 400.000 ms"]
    {
        assert!(output.out.contains(words), "{words} is not in\n{}", output.out);
    }
    phase("what batches gather in comes off as well");
    let (deferred, _) = read(&split(&workspace, &["p.toml", "--cost", "deferred", "-o", "json"]).ended_with(0).json());
    assert!((deferred - 4.233_809_524).abs() < 1e-6, "{deferred}");
}

#[test]
fn profiles_come_from_files_beside_the_pipeline() {
    let workspace = Workspace::new("split-csv").unwrap();
    let stages = "slo_ms = 100.0\nrate_rps = 10.0\n[[stage]]\nname = \"a\"\nprofile_csv = \"a.csv\"\n";
    workspace.write("p.toml", stages).unwrap();
    workspace.write("a.csv", "batch,latency_ms\n1,20\n4,50\n").unwrap();
    let (gpus, stages) = read(&split(&workspace, &["p.toml", "-o", "json"]).ended_with(0).json());
    // 10 a second in batches of four, 50 ms each.
    assert!((gpus - 0.125).abs() < 1e-9 && stages[0].2 == 4, "{gpus} {stages:?}");
    workspace.write("a.csv", "gpu_kind,batch,latency_ms\nt4,1,20\n").unwrap();
    let _ = split(&workspace, &["p.toml"]).ended_with(2).complains(&["p.toml", "stage.0.profile_csv", "a.csv"]);
}

#[test]
fn what_cannot_be_is_said_with_stages_and_bad_input_with_key() {
    let workspace = Workspace::new("no-split").unwrap();
    let run_with = |from: &str, to: &str| {
        assert!(traffic().contains(from), "{from}");
        workspace.write("p.toml", &traffic().replace(from, to)).unwrap();
        split(&workspace, &["p.toml"])
    };
    let _ = run_with("slo_ms = 400.0", "slo_ms = 53.0")
        .ended_with(1)
        .complains(&["53.000 ms cannot be met", "detect → faces takes 54"]);
    let _ = run_with("slo_ms = 400.0", "slo = 400.0").ended_with(2).complains(&["p.toml", "unknown field `slo`"]);
    let _ =
        run_with("gamma = 1.5", "gamma = 0.0").ended_with(2).complains(&["p.toml", "edge.0.gamma", "a number above 0"]);
    let _ = run_with("to = \"cars\"", "to = \"trucks\"").ended_with(2).complains(&[
        "edge.0.to",
        "`detect`, `cars`, `faces`",
        "`trucks`",
    ]);
    let _ = run_with("to = \"faces\"", "to = \"cars\"")
        .ended_with(2)
        .complains(&["edge.1", "at most one edge between two stages"]);
    let _ = split(&workspace, &["gone.toml"]).ended_with(2).complains(&["gone.toml"]);
}
