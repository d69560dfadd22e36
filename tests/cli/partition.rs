//! `symphony plan partition`: a plan from a file, what changes against another one, and words for what cannot be.

use std::path::Path;

use serde_json::Value;
use symphony_testkit::Workspace;
use symphony_tests::{ProgramOutput, alone, phase, run};

const SAMPLE: &str = "two-subclusters.toml";

fn sample(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/partitions").join(name);
    std::fs::read_to_string(path).unwrap()
}

fn partition(workspace: &Workspace, rest: &[&str]) -> ProgramOutput {
    let args: Vec<_> = ["plan", "partition"].iter().chain(rest).copied().collect();
    run(workspace.path(), &[], &args).unwrap()
}

/// All names in a list of parts.
fn names(plan: &Value, of: fn(&Value) -> Vec<String>) -> Vec<String> {
    let mut names: Vec<_> = plan["parts"].as_array().unwrap().iter().flat_map(of).collect();
    names.sort();
    names
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_plan_has_every_model_and_gpu_once_and_solving_again_changes_nothing() {
    let _alone = alone();
    let workspace = Workspace::new("partition").unwrap();
    workspace.write("p.toml", &sample(SAMPLE)).unwrap();
    let first = partition(&workspace, &["p.toml", "-o", "json"]).ended_with(0);
    let plan = first.json();
    assert!(plan["change"].is_null() && plan["bound"].is_null());
    let models = names(&plan["plan"], |part| texts(&part["models"]));
    assert_eq!(models.len(), 12, "{models:?}");
    let gpus =
        names(&plan["plan"], |part| part["gpus"].as_array().unwrap().iter().flat_map(|g| texts(&g["names"])).collect());
    assert_eq!(gpus.len(), 24, "{gpus:?}");
    assert_eq!(
        partition(&workspace, &["p.toml", "-o", "json"]).json()["plan"],
        plan["plan"],
        "equal inputs, equal plans"
    );

    phase("again, from the plan");
    workspace.write("plan.json", &first.out).unwrap();
    let output = partition(&workspace, &["p.toml", "--previous", "plan.json"]).ended_with(0);
    assert!(output.out.contains("nothing changes against the plan in force"), "{}", output.out);
    assert!(output.out.contains("cost of the moves 0.000"), "{}", output.out);

    phase("after a change of rates");
    workspace.write("q.toml", &sample(SAMPLE).replace("rate_rps = 900.0", "rate_rps = 1400.0")).unwrap();
    let changed = partition(&workspace, &["q.toml", "--previous", "plan.json", "-o", "json"]).ended_with(0).json();
    let change = &changed["change"];
    assert!(change["cost"].as_f64().unwrap() <= 3.0 && change["cost_max"] == 3.0, "{change}");
    assert!(change["after"]["objective"].as_f64() <= change["before"]["objective"].as_f64(), "{change}");
    let output = partition(&workspace, &["q.toml", "--previous", "plan.json"]).ended_with(0);
    for words in ["PART", "models and", "cost of the moves", "at most 3", "imbalance before", "imbalance after"] {
        assert!(output.out.contains(words), "{words} is not in\n{}", output.out);
    }
}

#[test]
fn the_top_level_is_planned_by_the_same_command() {
    let workspace = Workspace::new("federation").unwrap();
    workspace.write("f.toml", &sample("federation.toml")).unwrap();
    let plan = partition(&workspace, &["f.toml", "-o", "json"]).ended_with(0).json();
    let west = &plan["plan"]["parts"][0];
    assert_eq!(west["name"], "west");
    assert!(texts(&west["models"]).contains(&"vgg16-large".to_owned()), "only west can run it: {west}");
    assert_eq!(texts(&west["gpus"][0]["names"]).len(), 24, "GPUs stay with their cluster");
}

#[test]
fn what_cannot_be_is_said_with_limit_amount_and_model_and_bad_input_with_key() {
    let workspace = Workspace::new("no-partition").unwrap();
    let fine = sample(SAMPLE);
    let run_with = |text: &str, more: &[&str]| {
        workspace.write("p.toml", text).unwrap();
        let args: Vec<_> = ["p.toml"].iter().chain(more).copied().collect();
        partition(&workspace, &args)
    };
    let _ = run_with(&fine.replace("static_mb = 822", "static_mb = 9000"), &[]).ended_with(1).complains(&[
        "vgg16",
        "can be nowhere",
        "15200.0 MB",
        "3936.0 MB more than one GPU has",
    ]);
    let _ = run_with(&fine.replace("rate_max_rps = 5000.0", "rate_max_rps = 3000.0"), &[])
        .ended_with(1)
        .complains(&["rate: 12 models", "more than the 6000.0 r/s there"]);
    let _ = run_with(&fine.replace("slo_ms = 29.0", "slo = 29.0"), &[])
        .ended_with(2)
        .complains(&["p.toml", "unknown field `slo`"]);
    let _ = run_with(&fine.replace("slo_ms = 29.0", "slo_ms = -1.0"), &[])
        .ended_with(2)
        .complains(&["model.0.slo_ms", "-1"]);
    let _ = run_with(&fine, &["--time-limit-s", "0"]).ended_with(2).complains(&["seconds above 0"]);
    workspace.write("plan.json", "{\"parts\": 7}").unwrap();
    let _ = run_with(&fine, &["--previous", "plan.json"]).ended_with(2).complains(&["plan.json", "expected a plan"]);
    let _ = partition(&workspace, &["gone.toml"]).ended_with(2).complains(&["gone.toml"]);
    // The tests' own build has no HiGHS.
    let _ = run_with(&fine, &["--solver", "highs"])
        .ended_with(2)
        .complains(&["this build has no HiGHS", "--features highs"]);
}
