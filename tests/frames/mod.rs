//! The carrier of frames between real processes: shared memory on one host once a link is in use, TCP where that is
//! configured.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use symphony_testkit::wait_until;
use symphony_tests::{Shape, TestCluster, emulated_model, phase, tell};

/// Seconds of load; the kills come in the middle.
const LOAD_S: u32 = 12;
/// How long something may take on a busy machine.
const SOON: Duration = Duration::from_secs(120);
const BACKEND: &str = "backend-default";

/// The carrier of the links of this kind of a process.
fn carriers(cluster: &TestCluster, name: &str, link: &str) -> Result<Vec<String>> {
    let reply = cluster.console_of(name)?["frames"].take();
    let links = reply["links"].as_array().with_context(|| format!("no links: {reply}"))?;
    let of_kind = links.iter().filter(|row| row["link"] == link);
    Ok(of_kind.map(|row| row["transport"].as_str().unwrap_or("").to_owned()).collect())
}

/// Sends requests until a link of that kind comes through shared memory.
fn wait_for_sharing(cluster: &TestCluster, name: &str, link: &str) {
    let some = || {
        cluster.one_good_request("resnet")?;
        let carriers = carriers(cluster, name, link)?;
        ensure!(carriers.iter().any(|carrier| carrier == "shared-memory"), "{link} links of {name}: {carriers:?}");
        Ok(())
    };
    wait_until(&format!("a {link} link of {name} in shared memory"), SOON, some).unwrap();
}

/// Rings that a process has mapped: its own, and those of others.
fn rings(cluster: &TestCluster, name: &str) -> Result<usize> {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", cluster.process_id(name)?))?;
    Ok(maps.lines().filter(|line| line.contains("memfd:symphony-ring")).count())
}

fn wait_for_rings(cluster: &TestCluster, name: &str, count: usize) {
    let look = || {
        let mapped = rings(cluster, name)?;
        ensure!(mapped == count, "{mapped} rings are mapped");
        Ok(())
    };
    wait_until(&format!("{count} rings in {name}"), SOON, look).unwrap();
}

fn leader(cluster: &TestCluster) -> String {
    let (node, _) = cluster.subcluster("default").unwrap().leader.unwrap();
    format!("scheduler-{}", node.get())
}

#[test]
fn frames_of_one_host_go_through_shared_memory_and_whoever_is_killed_is_noticed_at_once() {
    tell("frames-shared", &Shape::emulated(&["default"]), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();

        phase("nobody said how; links in use go through shared memory, and it is told");
        let leads = leader(cluster);
        wait_for_sharing(cluster, "frontend", "dispatch");
        wait_for_sharing(cluster, BACKEND, "execute");
        wait_for_sharing(cluster, &leads, "dispatch");
        wait_for_sharing(cluster, &leads, "execute");
        wait_for_sharing(cluster, BACKEND, "data");
        for link in ["dispatch", "data"] {
            let line = format!("symphony_frame_links{{link=\"{link}\",transport=\"shared-memory\"}} 1");
            cluster.wait_for_metric("frontend", &line).unwrap();
        }
        // Two links, and two rings for each.
        wait_for_rings(cluster, "frontend", 4);

        phase("the backend is killed under load, and its rings are gone with it");
        let accepted = cluster.accepted().unwrap();
        let load = cluster.spawn_load("load", &["resnet=40"], LOAD_S).unwrap();
        cluster.wait_for_accepted(accepted + 80).unwrap();
        cluster.kill(BACKEND).unwrap();
        wait_for_rings(cluster, "frontend", 2);
        cluster.restart(BACKEND).unwrap();
        cluster.wait_until_it_serves("resnet").unwrap();

        phase("so is the leader; another one takes over, and no request is lost");
        cluster.kill(&leads).unwrap();
        cluster
            .wait_for_view("another leader", |view| {
                let first = view.subclusters.values().find(|s| s.name == "default")?;
                first.leader.filter(|(node, _)| format!("scheduler-{}", node.get()) != leads)
            })
            .unwrap();
        cluster.wait_until_it_serves("resnet").unwrap();
        let report = cluster.load_report(load, LOAD_S).unwrap();
        report.check_safety().unwrap();
        let next = leader(cluster);
        wait_for_sharing(cluster, &next, "dispatch");
        wait_for_sharing(cluster, &next, "execute");
        cluster.wait_for_a_balanced_ledger().unwrap();
    });
}

#[test]
fn tcp_carries_frames_where_it_is_asked_for() {
    tell("frames-tcp", &Shape::emulated(&["default"]).with("frames.transport=tcp"), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        for _ in 0..50 {
            cluster.one_good_request("resnet").unwrap();
        }
        for (name, links) in [("frontend", ["dispatch", "data"]), (BACKEND, ["execute", "data"])] {
            for link in links {
                let carriers = carriers(cluster, name, link).unwrap();
                assert!(
                    !carriers.is_empty() && carriers.iter().all(|carrier| carrier == "tcp"),
                    "{name}: {carriers:?}"
                );
            }
            assert_eq!(rings(cluster, name).unwrap(), 0);
        }
    });
}

#[test]
fn where_shared_memory_is_required_nothing_travels_without() {
    let shape = Shape::emulated(&["default"]).with("frames.transport=shared-memory").with("frames.required=true");
    tell("frames-required", &shape, |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        cluster.one_good_request("resnet").unwrap();
        for (name, link) in [("frontend", "dispatch"), (BACKEND, "execute"), (&leader(cluster), "dispatch")] {
            let carriers = carriers(cluster, name, link).unwrap();
            assert!(carriers.iter().any(|carrier| carrier == "shared-memory"), "{name}: {carriers:?}");
        }
        phase("and so after a take-over");
        let leads = leader(cluster);
        cluster.kill(&leads).unwrap();
        cluster.wait_until_it_serves("resnet").unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
    });
}
