//! The decisions of a real cluster are recorded, and made again.

mod compare;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use symphony_tests::{Shape, TestCluster, emulated_model, phase, tell};

/// Seconds of load.
const LOAD_S: u32 = 6;
const STOPS_WITHIN: Duration = Duration::from_secs(60);

/// Every tape there is.
fn tapes(cluster: &TestCluster) -> Vec<PathBuf> {
    let files = std::fs::read_dir(cluster.workspace.file("tapes")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "tape")).collect()
}

fn replay(cluster: &TestCluster, tapes: &[PathBuf], code: i32) -> Value {
    let mut args = vec!["replay".to_owned(), "-o".to_owned(), "json".to_owned()];
    args.extend(tapes.iter().map(|path| path.display().to_string()));
    cluster.cli(&args).ended_with(code).json()
}

fn sum(report: &Value, key: &str) -> u64 {
    report["tapes"].as_array().unwrap().iter().map(|tape| tape[key].as_u64().unwrap()).sum()
}

#[test]
fn what_a_cluster_decided_is_decided_again_byte_for_byte() {
    let shape = Shape::emulated(&["default"]).with("scheduler.tape_dir=tapes");
    tell("tape-parity", &shape, |cluster| {
        phase("four models under four policies, one of them with options, and load for all of them");
        let chosen = "{ name = \"timeout\", share = 0.1, drop = \"window\" }";
        for (model, policy) in [("symphony", "symphony"), ("auto", "auto"), ("eager", "eager"), ("chosen", chosen)] {
            let mut args = emulated_model(model, "default");
            args.extend(["--policy", policy]);
            let _ = cluster.cli(&args).ended_with(0);
            cluster.wait_until_it_serves(model).unwrap();
        }
        let models = ["symphony=40", "auto=40", "eager=40", "chosen=40"];
        let load = cluster.spawn_load("load", &models, LOAD_S).unwrap();

        phase("meanwhile the backend is lost and comes back, and a model leaves");
        let accepted = cluster.accepted().unwrap();
        cluster.wait_for_accepted(accepted + 200).unwrap();
        cluster.kill("backend-default").unwrap();
        cluster.restart("backend-default").unwrap();
        cluster.wait_until_it_serves("auto").unwrap();
        let report = cluster.load_report(load, LOAD_S).unwrap();
        report.check_safety().unwrap();
        let _ = cluster.cli(&["model", "unload", "eager"]).ended_with(0);

        phase("while it records, a tape replays as far as it is written");
        let report = replay(cluster, &tapes(cluster), 0);
        assert!(report["tapes"].as_array().unwrap().iter().any(|tape| tape["end"] == "cut"), "{report}");

        phase("the replicas stop; their tapes end with a word, and every decision comes out again");
        for id in 1..=3 {
            assert!(cluster.stop(&format!("scheduler-{id}"), STOPS_WITHIN).unwrap().success());
        }
        let tapes = tapes(cluster);
        let report = replay(cluster, &tapes, 0);
        for tape in report["tapes"].as_array().unwrap() {
            assert_eq!((&tape["same"], &tape["end"]), (&true.into(), &"stopped".into()), "{tape}");
        }
        assert!(sum(&report, "models") >= 4 && sum(&report, "batches") > 20, "{report}");
        assert!(sum(&report, "arrivals") > 400 && sum(&report, "grants") >= sum(&report, "batches"), "{report}");

        phase("a byte that changed is bad input, and named");
        let largest = tapes.iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap();
        let mut bytes = std::fs::read(largest).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let damaged = cluster.workspace.file("damaged.tape");
        std::fs::write(&damaged, &bytes).unwrap();
        let output = cluster.cli(&["replay", &damaged.display().to_string()]).ended_with(2);
        let _ = output.complains(&["damaged.tape", "byte", "the tape was damaged"]);

        phase("an action that was changed on purpose, with its checksum made right, is a difference");
        let mut bytes = std::fs::read(largest).unwrap();
        change_an_action(&mut bytes);
        std::fs::write(&damaged, &bytes).unwrap();
        let output = cluster.cli(&["replay", &damaged.display().to_string()]).ended_with(1);
        assert!(output.out.contains("decides differently"), "{output:?}");
        let _ = output.complains(&["1 of 1 tapes differ", "damaged.tape"]);
    });
}

/// Changes the last byte of the first chunk of records, and makes its checksum right. Chunks are handed over with a
/// decision, so that is the end of its actions.
fn change_an_action(bytes: &mut [u8]) {
    let length = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    // Behind magic and version comes the chunk with the header.
    let begin = 8 + 8 + length(8);
    let end = begin + 8 + length(begin);
    bytes[end - 1] ^= 1;
    let checksum = crc32c::crc32c(&bytes[begin + 8..end]).to_le_bytes();
    bytes[begin + 4..begin + 8].copy_from_slice(&checksum);
}

#[test]
fn what_is_no_tape_is_bad_input() {
    let workspace = symphony_testkit::Workspace::new("no-tape").unwrap();
    let run = |args: &[&str]| symphony_tests::run(workspace.path(), &[], args).unwrap();
    let _ = run(&["replay"]).ended_with(2);
    let _ = run(&["replay", "nowhere.tape"]).ended_with(2).complains(&["nowhere.tape"]);
    workspace.write("text.tape", "once upon a time").unwrap();
    let _ = run(&["replay", "text.tape"]).ended_with(2).complains(&["text.tape: no tape: 16 bytes"]);
}
