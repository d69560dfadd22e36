//! Recorded requests are sent to a cluster, taken out of its tapes again, and tried under other policies.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;
use symphony_tests::{LoadReport, Shape, emulated_model, phase, tell};

use super::{STOPS_WITHIN, replay, sum, tapes};

/// Requests of the recording: every 20 ms, the third one of three items.
const REQUESTS: u64 = 150;

fn recording() -> String {
    let row = |n: u64| {
        let (items, slo_ms) =
            (if n.is_multiple_of(3) { "3" } else { "" }, if n.is_multiple_of(2) { "800" } else { "" });
        format!("{}.{:02},f,{items},{slo_ms}\n", n / 50, n % 50 * 2)
    };
    std::iter::once("time_s,model,items,slo_ms\n".to_owned()).chain((0..REQUESTS).map(row)).collect()
}

/// Tapes by the lead that they are of: their names begin with sub-cluster, token and boot id.
fn by_lead(tapes: Vec<PathBuf>) -> BTreeMap<String, Vec<PathBuf>> {
    let mut leads: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for tape in tapes {
        let name = tape.file_name().unwrap().to_string_lossy().into_owned();
        let lead = name.split('-').take(3).collect::<Vec<_>>().join("-");
        leads.entry(lead).or_default().push(tape);
    }
    leads
}

#[test]
fn a_recorded_load_is_sent_taken_out_of_tapes_and_tried_under_other_policies() {
    let shape = Shape::emulated(&["default"]).with("scheduler.tape_dir=tapes");
    tell("tape-compare", &shape, |cluster| {
        let _ = cluster.cli(&emulated_model("m", "default")).ended_with(0);
        cluster.wait_until_it_serves("m").unwrap();

        phase("a recording is sent at its times; what it calls otherwise, or not at all, is refused before");
        cluster.workspace.write("arrivals.csv", &recording()).unwrap();
        let frontend = cluster.address("frontend", "grpc");
        let load = |rest: &[&str]| {
            let mut args = vec!["load", "--frontend", &frontend, "--trace", "arrivals.csv"];
            args.extend(LoadReport::OPTIONS);
            args.extend(rest);
            cluster.cli(&args)
        };
        let _ = load(&[]).ended_with(2).complains(&["--trace arrivals.csv: `f`: no such model; loaded are: m"]);
        let _ = load(&["--map", "g=m"]).ended_with(2).complains(&["the trace has no `g`; it has f"]);
        let output = load(&["--map", "f=m", "--speed", "1.5"]);
        let report = LoadReport::parse(output.code, &output.out, &output.err).unwrap();
        report.check_safety().unwrap();
        assert_eq!(report.json["models"][0]["name"], "m");
        assert_eq!(report.json["models"][0]["sent"], REQUESTS);

        phase("the replicas stop, and the requests are taken out of the tapes of the lead that had them");
        for id in 1..=3 {
            assert!(cluster.stop(&format!("scheduler-{id}"), STOPS_WITHIN).unwrap().success());
        }
        let leads = by_lead(tapes(cluster)).into_values();
        let arrived = |tapes: &Vec<PathBuf>| sum(&replay(cluster, tapes, 0), "arrivals");
        let tapes = leads.max_by_key(arrived).unwrap();
        let arrived = arrived(&tapes);
        assert!(arrived >= REQUESTS, "{arrived} requests are on {tapes:?}");
        let tapes: Vec<String> = tapes.iter().map(|path| path.display().to_string()).collect();
        let with = |words: &[&str], rest: &[&str]| {
            let tapes = tapes.iter().map(String::as_str);
            let args: Vec<_> = words.iter().copied().chain(tapes).chain(rest.iter().copied()).collect();
            cluster.cli(&args)
        };
        let output = with(&["tape", "arrivals"], &["-o", "out.csv"]).ended_with(0);
        assert!(output.out.contains(&format!("out.csv: {arrived} arrivals of 1 models")), "{output:?}");
        let csv = std::fs::read_to_string(cluster.workspace.file("out.csv")).unwrap();
        let rows: Vec<Vec<&str>> = csv.lines().skip(1).map(|line| line.split(',').collect()).collect();
        assert!(rows.len() as u64 == arrived && rows.iter().all(|row| row[1] == "m"), "{csv}");
        assert!(rows.iter().filter(|row| row[2] == "3").count() as u64 == REQUESTS / 3, "{csv}");

        phase("every policy has every request, on as many GPUs as there were, or on others");
        let args = ["--policy", "auto,clockwork", "--gpus", "1,2", "-o", "json", "--html", "page.html"];
        let compared = with(&["compare"], &args).ended_with(0).json();
        let runs = compared["runs"].as_array().unwrap();
        let compared_runs: Vec<_> =
            runs.iter().map(|run| (run["policy"].as_str().unwrap(), run["gpus"].as_u64().unwrap())).collect();
        assert_eq!(compared_runs, [("auto", 1), ("clockwork", 1), ("auto", 2), ("clockwork", 2)]);
        for run in runs {
            let count = |key: &str| run[key].as_u64().unwrap();
            assert_eq!(count("offered"), arrived, "{run}");
            assert_eq!(count("good") + count("late") + count("dropped"), arrived, "{run}");
            assert!(count("good") > arrived / 2 && run["gpu_s"].as_f64().unwrap() > 0.0, "{run}");
        }
        let happened = &compared["recorded"];
        let count = |key: &str| happened[key].as_u64().unwrap();
        let ended = count("good") + count("late") + count("dropped");
        assert_eq!(ended + count("cancelled") + count("unknown"), arrived, "{happened}");
        assert!(count("good") > arrived / 2 && ended > arrived * 9 / 10, "{happened}");
        assert!(happened["gpu_s"].as_f64().unwrap() > 0.0 && count("gpus") > 0, "{happened}");
        let faster = with(&["compare"], &["--policy", "auto", "--speed", "2", "-o", "json"]).ended_with(0).json();
        assert!(faster["recorded"].is_null(), "that load never came: {faster}");
        let page = std::fs::read_to_string(cluster.workspace.file("page.html")).unwrap();
        assert!(page.contains("<svg") && page.contains("clockwork") && page.contains(">recorded<"), "{page}");
        let recorded: Value = with(&["compare"], &["--policy", "eager", "-o", "json"]).ended_with(0).json();
        assert!(recorded["runs"][0]["gpus"].as_u64().unwrap() > 0, "{recorded}");
        let table = with(&["compare"], &["--policy", "eager"]).ended_with(0);
        assert!(table.out.contains("POLICY") && table.out.contains("GPU S"), "{table:?}");
        assert!(table.out.contains("recorded: what happened"), "{table:?}");

        phase("what cannot be compared is refused in words");
        let twice = with(&["compare"], &[&tapes[0], "--policy", "auto"]);
        let _ = twice.ended_with(2).complains(&["given twice; expected each tape once"]);
        let refused = with(&["compare"], &["--policy", "auto,none"]).ended_with(2);
        let _ = refused.complains(&["--policy none: key `policy`: expected one of"]);
        let rank = tapes.iter().find(|path| path.ends_with("-rank.tape")).unwrap();
        let _ = cluster
            .cli(&["compare", rank, "--policy", "auto"])
            .ended_with(2)
            .complains(&["no requests are on these tapes"]);
    });
}
