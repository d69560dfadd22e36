//! The console shows the whole cluster, whichever process is asked, and in a real browser.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use symphony_testkit::{browser, wait_until};
use symphony_tests::{Reply, RestClient, Shape, TestCluster, emulated_model, phase, tell};

/// Leads report once a second, slots have ten seconds; the machine may be busy.
const SEEN_WITHIN: Duration = Duration::from_secs(60);
/// Some of each role; the second frontend has no requests of its own.
const PROCESSES: [&str; 5] = ["scheduler-1", "scheduler-3", "backend-default", "frontend", "frontend-2"];

fn get(cluster: &TestCluster, process: &str, path: &str) -> Result<Reply> {
    let client = RestClient::new(&cluster.address(process, "metrics"));
    cluster.block_on(async { client.get(path).await })
}

fn ask(cluster: &TestCluster, process: &str, path: &str) -> Result<Value> {
    let reply = get(cluster, process, path)?;
    ensure!(reply.status == 200, "{process}: {reply:?}");
    Ok(serde_json::from_str(&reply.body)?)
}

/// The last request of the model that ran, by the console of a process.
fn ran(cluster: &TestCluster, process: &str) -> Result<String> {
    let model = ask(cluster, process, "/api/console/model?name=resnet")?;
    let slots = model["slots"].as_array().context("it has slots")?;
    let latency = slots.iter().any(|slot| slot["p99_ms"].as_f64().is_some_and(|p99| p99 > 0.0));
    ensure!(latency && model["slo_ms"] == 500.0, "{model}");
    Ok(model["slowest"][0]["request"].as_str().context("a request has run")?.to_owned())
}

/// Looks at it as people do.
fn check_in_browser(cluster: &TestCluster) {
    let Some(browser) = browser() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/console.py");
    let console = format!("http://{}", cluster.address("scheduler-2", "metrics"));
    let mut looks = Command::new(&browser.python);
    looks.arg(script).args(["--console", &console, "--model", "resnet", "--chromium"]).arg(&browser.chromium);
    looks.arg("--out").arg(cluster.workspace.file("console"));
    let output = looks.stdin(Stdio::null()).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the console in a browser:\n{text}");
}

#[test]
fn any_process_shows_the_whole_cluster_and_what_became_of_its_requests() {
    let shape = Shape::emulated(&["default"]).with_frontends(2);
    tell("console", &shape, |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        let load = cluster.spawn_load_until_ended("load", &["resnet=40"]).unwrap();
        cluster.wait_for_more(100).unwrap();

        phase("every process shows the load that one frontend has");
        for process in PROCESSES {
            let shown = wait_until(&format!("{process} to show the load"), SEEN_WITHIN, || {
                let shown = ask(cluster, process, "/api/console")?;
                let model = &shown["models"][0];
                let rate = model["now"]["rate_rps"].as_f64().unwrap_or(0.0);
                ensure!(model["name"] == "resnet" && model["ready"] == true && rate > 1.0, "{shown}");
                ensure!(model["now"]["p99_ms"].is_f64() && model["queued"].is_u64(), "{shown}");
                let busy = shown["gpus"].as_array().is_some_and(|gpus| gpus.iter().all(|gpu| gpu["busy"].is_f64()));
                ensure!(busy, "GPU times need two reports of the lead: {shown}");
                Ok(shown)
            });
            let shown = shown.unwrap();
            assert_eq!(shown["notes"], serde_json::json!([]), "{process}");
            let processes = shown["processes"].as_array().unwrap();
            assert_eq!(processes.len(), 3 + 1 + 2, "{process}: {processes:?}");
            let timed = |event: &Value| event["at_unix_ms"].as_u64().is_some_and(|at| at > 1_600_000_000_000);
            assert!(shown["events"].as_array().unwrap().iter().all(timed), "{process}: {}", shown["events"]);
        }

        phase("it leads from the model to a request, and from there to why");
        for process in PROCESSES {
            let explained = wait_until(&format!("{process} to explain a request"), SEEN_WITHIN, || {
                let request = ran(cluster, process)?;
                let explained = ask(cluster, process, &format!("/api/console/explain?request={request}"))?;
                Ok((request, explained))
            });
            let (request, explained) = explained.unwrap();
            let words = explained["explanations"][0].as_str().unwrap();
            assert!(words.contains(&request) && words.contains("for resnet"), "{process}: {words}");
            let gpus = ask(cluster, process, "/api/console/gpus").unwrap();
            let batches = gpus["batches"].as_array().unwrap();
            assert!(!batches.is_empty() && batches.iter().all(|batch| batch["model"] == "resnet"), "{process}: {gpus}");
        }

        phase("what there is not is an answer, too");
        for (path, status, words) in [
            ("/api/console/model?name=nobody", 404, "there is no model `nobody`"),
            ("/api/console/model", 400, "expected ?name="),
            ("/api/console/explain?request=seventeen", 400, "`seventeen` is no request id"),
            ("/api/console/explain?request=f1/2/3", 404, "no leader remembers"),
        ] {
            let reply = get(cluster, "scheduler-1", path).unwrap();
            assert!(reply.status == status && reply.body.contains(words), "{path}: {reply:?}");
        }

        phase("in a browser");
        check_in_browser(cluster);
        cluster.end_load(load).unwrap().check_safety().unwrap();

        phase("a frontend that does not answer is named, and the rest is shown");
        cluster.pause("frontend-2").unwrap();
        wait_until("the silent frontend to be named", SEEN_WITHIN, || {
            let shown = ask(cluster, "scheduler-1", "/api/console")?;
            let note = shown["notes"][0].as_str().unwrap_or_default();
            ensure!(note.starts_with("1 of 2 frontends do not answer") && note.contains("frontend-2"), "{shown}");
            ensure!(shown["models"][0]["name"] == "resnet", "{shown}");
            Ok(())
        })
        .unwrap();
        cluster.resume("frontend-2").unwrap();
    });
}
