//! Simulator and live agree, as far as two busy cores can say: `benches/live_over_simulated.py`, short, with time
//! stretched far.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use symphony_testkit::{ChildSpec, Workspace};
use symphony_tests::{LoadReport, alone, phase, symphony};

/// A few seconds of load for each rate; searches in virtual time, start and end come on top.
const ENDS_WITHIN: Duration = Duration::from_secs(240);
/// Seconds of load for each rate.
const SECONDS: &str = "6";
/// Of the requests well below the simulated goodput, this many are in time: the simulator misses none.
const IN_TIME_MIN: f64 = 0.9;

/// What the script has to say of a case whose time is stretched `scale` times, under a policy, at shares of its
/// simulated goodput.
fn compared(workspace: &Workspace, (case, policy): (&str, &str), scale: &str, shares: &[&str]) -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let python = root.join(".cache/venv/bin/python");
    assert!(python.exists(), "{} is missing; run `make setup-tests` once", python.display());
    let script = root.join("benches/live_over_simulated.py").display().to_string();
    let program = symphony().unwrap().display().to_string();
    let out = format!("{case}-{policy}.json");
    let mut args = vec![&*script, &*program, "--no-search", "--seconds", SECONDS, "--out", &*out];
    args.extend(["--case", case, "--policy", policy, "--scale", scale]);
    args.extend(shares.iter().flat_map(|share| ["--share", share]));
    let mut child = ChildSpec::new(format!("{case}-{policy}"), python, args, workspace.path()).spawn().unwrap();
    let status = child.wait(ENDS_WITHIN).unwrap();
    let stdout = child.stdout().unwrap();
    // It fails if a request is lost, answered twice, or counted differently by client and frontend.
    assert_eq!(status.code(), Some(0), "{stdout}\n{}", child.log_tail());
    eprintln!("{stdout}");
    let found = std::fs::read_to_string(workspace.file(&out)).unwrap();
    let found: Value = serde_json::from_str(&found).unwrap();
    found["results"][0]["results"].as_array().unwrap().clone()
}

#[track_caller]
fn check_books(live: &Value) {
    let count = |key: &str| live[key].as_u64().unwrap();
    assert!(count("offered") > 0 && count("good") > 0, "{live}");
    assert_eq!(count("offered"), count("good") + count("late") + count("dropped") + count("failed"), "{live}");
}

#[track_caller]
fn check_agreement(result: &Value) {
    check_books(&result["live"]);
    let in_time = |of: &str| result[of]["in_time"].as_f64().unwrap();
    assert!(in_time("simulated") > 0.99 && in_time("live") > IN_TIME_MIN, "{result}");
}

/// As many are in time near the goodput, too, unless the machine held the load generator up, and so the cluster.
#[track_caller]
fn check_near_the_goodput(result: &Value) {
    check_books(&result["live"]);
    let lag_ms = result["live"]["client_lag_p99_ms"].as_f64().unwrap();
    if lag_ms > LoadReport::LAG_JUDGED_MS {
        eprintln!("the generator lagged by {lag_ms} ms, which says nothing about the cluster: {result}");
        return;
    }
    let in_time = |of: &str| result[of]["in_time"].as_f64().unwrap();
    assert!(in_time("live") > in_time("simulated") - (1.0 - IN_TIME_MIN), "{result}");
}

#[test]
fn what_the_simulator_serves_is_served_live_and_nothing_is_lost_above_its_goodput() {
    let _alone = alone();
    let workspace = Workspace::new("live-and-simulated").unwrap();
    phase("ResNet-50 on 8 GPUs, at half of the simulated goodput, near it and above it");
    let results = compared(&workspace, ("table4", "auto"), "50", &["0.5", "0.9", "1.05"]);
    check_agreement(&results[0]);
    check_near_the_goodput(&results[1]);
    check_books(&results[2]["live"]);
    phase("35 models on 64 GPUs, at a rate that two busy cores carry, and above the simulated goodput");
    let results = compared(&workspace, ("zoo", "auto"), "26", &["0.2", "1.05"]);
    check_agreement(&results[0]);
    check_books(&results[1]["live"]);
}

/// A policy for the whole sub-cluster serves live what it serves in the simulator.
#[test]
fn rivals_serve_live_what_they_serve_in_the_simulator() {
    let _alone = alone();
    let workspace = Workspace::new("rivals-live").unwrap();
    for policy in ["clockwork", "nexus", "shepherd"] {
        phase(&format!("ResNet-50 on 8 GPUs under {policy}, at half of its simulated goodput"));
        let results = compared(&workspace, ("table4", policy), "50", &["0.5"]);
        check_agreement(&results[0]);
    }
}
