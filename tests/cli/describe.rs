//! One thing of a cluster: by name, at length, in other formats, and as it changes.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use symphony_testkit::wait_until;
use symphony_tests::{Shape, emulated_model, phase, symphony, tell};

/// Far longer than a change takes to be seen.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

#[test]
fn one_thing_is_shown_by_name_described_and_watched() {
    tell("describe", &Shape::emulated(&["first", "second"]), |cluster| {
        for (model, subcluster) in [("resnet", "first"), ("digits", "second")] {
            let _ = cluster.cli(&emulated_model(model, subcluster)).ended_with(0);
        }

        phase("by name: the others are left out, and a name that is none has near ones");
        let json = cluster.cli(&["get", "model", "digits", "-o", "json"]).ended_with(0).json();
        assert_eq!((json.as_array().map(Vec::len), &json[0]["name"]), (Some(1), &"digits".into()));
        let gpus = cluster.cli(&["get", "gpus", "backend-first", "-o", "json"]).ended_with(0).json();
        assert_eq!(gpus.as_array().map(Vec::len), Some(2));
        let scheduler = cluster.cli(&["get", "member", "scheduler-2", "-o", "json"]).ended_with(0).json();
        assert_eq!(scheduler[0]["id"], "n2");
        let wrong = cluster.cli(&["get", "models", "resent"]).ended_with(2);
        let _ = wrong.complains(&["no model is named `resent`; similar names: resnet"]);
        let _ = cluster.cli(&["get", "events", "resnet"]).ended_with(2).complains(&["have no names"]);

        phase("wide, and as YAML, which says what JSON says");
        let wide = cluster.cli(&["get", "models", "resnet", "-o", "wide"]).ended_with(0).out;
        assert!(wide.contains("KINDS") && wide.contains("backend-first"), "{wide}");
        let yaml = cluster.cli(&["get", "models", "-o", "yaml"]).ended_with(0).out;
        assert!(yaml.contains("name: resnet") && yaml.contains("slo_ms: 500"), "{yaml}");

        phase("at length, with what happened to it");
        let model = cluster.cli(&["describe", "model", "resnet"]).ended_with(0).out;
        for words in
            ["model resnet", "resnet on backend-first: ready", "500 ms", "operator/admin asked: load model resnet"]
        {
            assert!(model.contains(words), "`{words}` is not in\n{model}");
        }
        assert!(!model.contains("digits"), "{model}");
        let leader = cluster.cli(&["describe", "member", "scheduler-1", "-o", "json"]).ended_with(0).json();
        assert_eq!((&leader["kind"], &leader["items"][0]["id"]), (&"member".into(), &"n1".into()));
        let gpu = gpus[0]["id"].as_u64().unwrap();
        let gpu = cluster.cli(&["describe", "gpu", &format!("g{gpu}")]).ended_with(0).out;
        assert!(gpu.contains("backend-first") && gpu.contains("emulated"), "{gpu}");
        let pool = cluster.cli(&["describe", "subcluster", "secnd"]).ended_with(2);
        let _ = pool.complains(&["similar names: second"]);

        phase("watched: a line for each change, until Ctrl-C");
        let watch = ["get", "models", "--watch", "-o", "json"];
        let mut watching = cluster.spawn_cli("watch", &watch).unwrap();
        let lines = |child: &symphony_testkit::Child| {
            let all = child.stdout().unwrap();
            // The last one may be half written.
            all.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).collect::<Vec<_>>()
        };
        wait_until("the first line", SEEN_WITHIN, || {
            anyhow::ensure!(lines(&watching).len() == 1, "{:?}", lines(&watching));
            Ok(())
        })
        .unwrap();
        let _ = cluster.cli(&["model", "set", "resnet", "--slo-ms", "400"]).ended_with(0);
        wait_until("the change to be seen", SEEN_WITHIN, || {
            let all = lines(&watching);
            let last = all.last().and_then(|all| all.as_array()?.iter().find(|one| one["name"] == "resnet"));
            anyhow::ensure!(last.is_some_and(|model| model["slo_ms"] == 400.0), "{all:?}");
            Ok(())
        })
        .unwrap();
        watching.signal(Signal::SIGINT).unwrap();
        assert_eq!(watching.wait(SEEN_WITHIN).unwrap().code(), Some(0), "{}", watching.log_tail());

        phase("watched by somebody who leaves: it ends although nothing changes");
        let mut left = Command::new(symphony().unwrap())
            .args(["get", "models", "-w"])
            .env("SYMPHONY_CLUSTER", cluster.control_addresses())
            .env("SYMPHONY_PKI", cluster.workspace.file("pki"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(left.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ID"), "{line}");
        let ended = wait_until("the program to end", SEEN_WITHIN, || {
            left.try_wait()?.ok_or_else(|| anyhow::anyhow!("it runs"))
        });
        let _ = left.kill();
        assert_eq!(ended.unwrap().code(), Some(141));
    });
}
