//! How payloads travel between real processes: shared memory on one host, TCP where that is wanted, and nothing in
//! secret.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;
use symphony_protocol::view::View;
use symphony_testkit::wait_until;
use symphony_tests::{Shape, TestCluster, emulated_model, phase, tell};
use symphony_types::BootId;

/// Seconds of load.
const LOAD_S: u32 = 8;
/// How long something may take on a busy machine.
const SOON: Duration = Duration::from_secs(120);
const BACKEND: &str = "backend-default";

/// The backend's counters of its payloads.
fn payloads(cluster: &TestCluster) -> Result<Value> {
    Ok(cluster.console_of(BACKEND)?["payloads"].take())
}

/// Sends requests until the backend has read this many inputs in this way; returns its counters then.
fn wait_for_inputs(cluster: &TestCluster, transport: &str, count: u64) -> Value {
    let some = || {
        cluster.one_good_request("resnet")?;
        let payloads = payloads(cluster)?;
        ensure!(payloads["reads"][transport]["inputs"].as_u64() >= Some(count), "{payloads}");
        Ok(payloads)
    };
    wait_until(&format!("{count} inputs by {transport}"), SOON, some).unwrap()
}

/// Pools that a process has mapped: its own, and those of others.
fn pools(cluster: &TestCluster, name: &str) -> Result<usize> {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", cluster.process_id(name)?))?;
    Ok(maps.lines().filter(|line| line.contains("memfd:symphony-pool")).count())
}

fn wait_for_pools(cluster: &TestCluster, name: &str, count: usize) {
    let look = || {
        let mapped = pools(cluster, name)?;
        ensure!(mapped == count, "{mapped} pools are mapped");
        Ok(())
    };
    wait_until(&format!("{count} pools in {name}"), SOON, look).unwrap();
}

#[test]
fn processes_of_one_host_share_memory_and_leave_none_behind() {
    tell("payloads-shared", &Shape::emulated(&["default"]), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();

        phase("nobody said how, and inputs come by shared memory; it is told, with delays");
        let reply = wait_for_inputs(cluster, "shared-memory", 5);
        assert_eq!(reply["frontends"][0]["transport"], "shared-memory", "{reply}");
        let reads = &reply["reads"]["shared-memory"];
        let us = |name: &str| reads[name].as_f64().unwrap();
        assert!(us("p50_us") > 0.0 && us("p50_us") <= us("p99_us") && us("p99_us") <= us("p9999_us"), "{reads}");
        let line = "symphony_backend_payload_frontends{transport=\"shared-memory\"} 1";
        cluster.wait_for_metric(BACKEND, line).unwrap();
        // Its own and the other's: inputs of the frontend, results of the backend.
        wait_for_pools(cluster, BACKEND, 2);
        wait_for_pools(cluster, "frontend", 2);

        phase("the backend is killed under load, and its memory is gone with it");
        let accepted = cluster.accepted().unwrap();
        let load = cluster.spawn_load("load", &["resnet=40"], LOAD_S).unwrap();
        cluster.wait_for_accepted(accepted + 80).unwrap();
        cluster.kill(BACKEND).unwrap();
        wait_for_pools(cluster, "frontend", 1);
        cluster.restart(BACKEND).unwrap();
        let report = cluster.load_report(load, LOAD_S).unwrap();
        report.check_safety().unwrap();
        wait_for_inputs(cluster, "shared-memory", 1);

        phase("so is the frontend's");
        let mut load = cluster.spawn_load("load-again", &["resnet=40"], 30).unwrap();
        let accepted = cluster.accepted().unwrap();
        cluster.wait_for_accepted(accepted + 40).unwrap();
        cluster.kill("frontend").unwrap();
        load.kill().unwrap();
        wait_for_pools(cluster, BACKEND, 0);
        cluster.restart("frontend").unwrap();
        cluster.wait_until_it_serves("resnet").unwrap();
        let before = payloads(cluster).unwrap()["reads"]["shared-memory"]["inputs"].as_u64().unwrap();
        let reply = wait_for_inputs(cluster, "shared-memory", before + 1);
        assert_eq!(reply["damaged"], 0, "{reply}");
        cluster.wait_for_a_balanced_ledger().unwrap();
    });
}

/// A link takes a handshake and more, and a batch that waits for its inputs so long has missed its start.
#[test]
fn a_backend_is_linked_before_its_models_are_ready_and_to_whoever_comes_later() {
    const LINKED: &str = "symphony_backend_payload_frontends{transport=\"shared-memory\"} 2";
    tell("payloads-early", &Shape::emulated(&["default"]).with_frontends(2), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        let ready = |former: Option<BootId>| {
            move |view: &View| {
                let backend = view.backends.values().find(|backend| backend.up && Some(backend.boot) != former)?;
                view.models.values().all(|model| model.is_ready(view)).then_some(backend.boot)
            }
        };
        let former = cluster.wait_for_view("the model", ready(None)).unwrap();
        cluster.wait_for_metric(BACKEND, LINKED).unwrap();

        phase("a backend that has come back has links when it is said to be ready; nobody has asked for anything");
        cluster.kill(BACKEND).unwrap();
        cluster.restart(BACKEND).unwrap();
        cluster.wait_for_view("the model in the next boot", ready(Some(former))).unwrap();
        let metrics = cluster.metrics_of(BACKEND).unwrap();
        let linked = metrics.lines().any(|line| line == LINKED);
        // On a machine that stands still for a second it is not held back any longer.
        assert!(linked || cluster.wait_for_log(BACKEND, "not linked in time").is_ok(), "{metrics}");

        phase("a frontend that has come back is linked as well");
        cluster.kill("frontend").unwrap();
        cluster.wait_for_metric(BACKEND, &LINKED.replace(" 2", " 1")).unwrap();
        cluster.restart("frontend").unwrap();
        cluster.wait_for_metric(BACKEND, LINKED).unwrap();
        let reply = payloads(cluster).unwrap();
        assert_eq!(reply["reads"]["shared-memory"]["inputs"], 0, "{reply}");
        assert_eq!(reply["reads"]["tcp"]["inputs"], 0, "{reply}");
    });
}

#[test]
fn tcp_is_used_where_it_is_asked_for() {
    let shape = Shape::emulated(&["default"]).with("frontend.payloads.transport=tcp");
    tell("payloads-tcp", &shape, |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        let reply = wait_for_inputs(cluster, "tcp", 3);
        assert_eq!(reply["frontends"][0]["transport"], "tcp", "{reply}");
        assert_eq!(reply["reads"]["shared-memory"]["inputs"], 0, "{reply}");
        assert_eq!((pools(cluster, BACKEND).unwrap(), pools(cluster, "frontend").unwrap()), (0, 0));
    });
}

#[test]
fn a_pair_that_cannot_do_what_one_of_them_requires_is_refused() {
    let required = |role: &str, other: &str| {
        Shape::emulated(&["default"])
            .with(&format!("{role}.payloads.transport=shared-memory"))
            .with(&format!("{role}.payloads.required=true"))
            .with(&format!("{other}.payloads.transport=tcp"))
    };
    for (role, other, name) in [("frontend", "backend", "frontend"), ("backend", "frontend", BACKEND)] {
        tell(&format!("payloads-required-{role}"), &required(role, other), |cluster| {
            let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
            phase("no input travels another way");
            assert!(cluster.one_request_in_time("resnet").is_err(), "a request was answered");
            cluster.wait_for_log(name, &format!("{role}.payloads requires shared memory")).unwrap();
            assert!(cluster.one_request_in_time("resnet").is_err(), "a request was answered");
            assert_eq!(payloads(cluster).unwrap()["reads"]["tcp"]["inputs"], 0);
        });
    }
}
