//! `symphony plan fleet`: a fleet from a file in one shot, the best one by simulation, and words for what cannot be.

use std::path::Path;

use symphony_testkit::Workspace;
use symphony_tests::{ProgramOutput, alone, phase, run};

fn sample(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/fleets").join(name);
    std::fs::read_to_string(path).unwrap()
}

fn workspace() -> Workspace {
    let workspace = Workspace::new("fleet").unwrap();
    for name in ["ranking-model.toml", "ranking-model.csv"] {
        workspace.write(name, &sample(name)).unwrap();
    }
    workspace
}

fn fleet(workspace: &Workspace, rest: &[&str]) -> ProgramOutput {
    let args: Vec<_> = ["plan", "fleet"].iter().chain(rest).copied().collect();
    run(workspace.path(), &[], &args).unwrap()
}

#[test]
fn a_fleet_within_the_budget_is_chosen_and_all_are_ranked() {
    let _alone = alone();
    let workspace = workspace();
    let reply = fleet(&workspace, &["ranking-model.toml", "-o", "json"]).ended_with(0).json();
    let ranking = reply["ranking"].as_array().unwrap();
    let bounds: Vec<f64> = ranking.iter().map(|fleet| fleet["bound_rps"].as_f64().unwrap()).collect();
    assert!(bounds.len() > 20 && bounds.is_sorted_by(|a, b| a + 1e-6 >= *b), "{bounds:?}");
    assert!(ranking.iter().all(|fleet| fleet["price_per_hour"].as_f64().unwrap() <= 3.0 + 1e-6));
    assert!(reply["counts"]["gpu"].as_u64().unwrap() >= 1, "only the GPU answers everything: {}", reply["counts"]);
    assert!(reply["price_per_hour"].as_f64().unwrap() <= 3.0 + 1e-6 && reply["seconds"].as_f64().is_some());
    let table = fleet(&workspace, &["ranking-model.toml"]).ended_with(0).out;
    assert!(table.contains("chosen") && table.contains("fleets within 3 per hour"), "{table}");

    phase("what merges requests is bounded no lower");
    let merged = fleet(&workspace, &["ranking-model.toml", "--bound", "together", "-o", "json"]).ended_with(0).json();
    let alone = fleet(&workspace, &["ranking-model.toml", "--bound", "alone", "-o", "json"]).ended_with(0).json();
    let highest = |reply: &serde_json::Value| reply["ranking"][0]["bound_rps"].as_f64().unwrap();
    assert!(highest(&merged) + 1e-6 >= highest(&alone));
}

#[test]
fn several_models_share_the_fleet_that_simulations_choose() {
    let _alone = alone();
    let workspace = Workspace::new("fleet").unwrap();
    workspace.write("latency.csv", "kind,items,latency_ms\nfast,1,6\nfast,16,21\nslow,1,12\nslow,16,72\n").unwrap();
    let model = |name: &str, share: f64| {
        format!("[[model]]\nname = '{name}'\nshare = {share}\nslo_ms = 100.0\nlatency_csv = 'latency.csv'\n")
    };
    let kinds = "[[kind]]\nname = 'fast'\nprice_per_hour = 1.0\n[[kind]]\nname = 'slow'\nprice_per_hour = 0.4\n";
    let text = format!("budget_per_hour = 2.0\n{kinds}{}{}", model("a", 3.0), model("b", 1.0));
    workspace.write("two.toml", &text).unwrap();
    let reply = fleet(&workspace, &["two.toml", "--evaluate", "-o", "json"]).ended_with(0).json();
    assert_eq!((reply["policy"].as_str(), reply["complete"].as_bool()), (Some("auto"), Some(true)), "{reply}");
    let (chosen, bound) = (reply["goodput_rps"].as_f64().unwrap(), reply["ranking"][0]["bound_rps"].as_f64().unwrap());
    assert!(chosen > 0.0 && chosen <= bound, "{chosen} of {bound}");
}

#[test]
fn simulations_find_a_fleet_that_no_other_can_beat() {
    let _alone = alone();
    let workspace = workspace();
    let small = sample("ranking-model.toml").replace("budget_per_hour = 3.0", "budget_per_hour = 1.3");
    workspace.write("small.toml", &small).unwrap();
    let reply = fleet(&workspace, &["small.toml", "--evaluate", "-o", "json"]).ended_with(0).json();
    let evaluations = reply["evaluations"].as_array().unwrap();
    let best = evaluations.iter().map(|fleet| fleet["goodput_rps"].as_f64().unwrap()).fold(0.0, f64::max);
    assert_eq!(reply["goodput_rps"].as_f64(), Some(best));
    assert!(reply["complete"] == true && best > 0.0, "{reply}");
    let others = reply["ranking"].as_array().unwrap().len();
    assert!(evaluations.len() <= others, "{} evaluations of {others}", evaluations.len());
    // Every fleet is beaten by its bound, or part of one that was simulated.
    for fleet in reply["ranking"].as_array().unwrap() {
        let count = |fleet: &serde_json::Value, kind: &str| fleet["counts"][kind].as_u64().unwrap();
        let kinds = ["gpu", "large-cpu", "small-cpu"];
        let part = |of: &serde_json::Value| kinds.iter().all(|kind| count(fleet, kind) <= count(of, kind));
        let beaten = fleet["bound_rps"].as_f64().unwrap() <= best;
        assert!(beaten || evaluations.iter().any(part), "{fleet}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_file_key_and_expectation() {
    let _alone = alone();
    let workspace = workspace();
    let refused = |from: &str, to: &str, words: &[&str]| {
        workspace.write("bad.toml", &sample("ranking-model.toml").replace(from, to)).unwrap();
        let _ = fleet(&workspace, &["bad.toml"]).ended_with(2).complains(words);
    };
    refused("price_per_hour = 0.4", "price_per_hour = 0", &["bad.toml", "kind.1.price_per_hour", "above 0"]);
    refused("budget_per_hour = 3.0", "budget_per_hour = 0.1", &["bad.toml", "budget_per_hour", "at least 0.15"]);
    refused("budget_per_hour = 3.0", "budget_per_hour = 0.5", &["bad.toml", "budget_per_hour", "at least 0.6"]);
    refused("\"small-cpu\"", "\"tpu\"", &["bad.toml", "latency_csv", "no rows for kind `tpu`", "small-cpu"]);
    refused("ranking-model.csv", "gone.csv", &["bad.toml", "latency_csv", "gone.csv"]);
    let _ = fleet(&workspace, &["ranking-model.toml", "--policy", "auto"]).ended_with(2).complains(&["--evaluate"]);
    let magic = fleet(&workspace, &["ranking-model.toml", "--evaluate", "--policy", "magic"]);
    let _ = magic.ended_with(2).complains(&["policy", "magic"]);
}

#[test]
fn provisioning_within_a_budget_asks_for_a_price_of_each_kind() {
    let _alone = alone();
    let workspace = workspace();
    let provision = |rest: &[&str]| {
        let args: Vec<_> = ["provision", "--max", "2"].iter().chain(rest).copied().collect();
        run(workspace.path(), &[], &args).unwrap().ended_with(2)
    };
    let two_prices =
        ["--config", "a.toml", "--budget-per-hour", "1", "--price-per-hour", "0.5", "--price-per-hour", "0.5"];
    let _ = provision(&two_prices).complains(&["--price-per-hour", "one for each --config, got 2 for 1"]);
    let little = ["--config", "a.toml", "--budget-per-hour", "0.4", "--price-per-hour", "0.5"];
    let _ = provision(&little).complains(&["--budget-per-hour", "at least 0.5", "got 0.4"]);
    let _ = provision(&["--config", "a.toml", "--budget-per-hour", "0"]).complains(&["above 0"]);
    let free = ["--config", "a.toml", "--budget-per-hour", "1", "--price-per-hour", "0"];
    let _ = provision(&free).complains(&["--price-per-hour", "above 0"]);
    let _ = provision(&["--config", "a.toml", "--budget-per-hour", "1"]).complains(&["--price-per-hour"]);
}
