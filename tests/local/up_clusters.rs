//! `symphony up --clusters`: a federation that runs until it is stopped.

use std::net::Ipv4Addr;
use std::time::Duration;

use symphony_testkit::{ChildSpec, Workspace, wait_until};
use symphony_tests::{RestClient, alone, phase, run, symphony};

use super::up::processes_with;

/// A dozen processes come up on a machine that does other things as well.
const READY_WITHIN: Duration = Duration::from_secs(120);
const STOPS_WITHIN: Duration = Duration::from_secs(120);

/// An address of loopback of this test's own: the ports are those of every federation.
pub(crate) fn own_host() -> Ipv4Addr {
    // Process ids have 22 bits. Chaos runs take the addresses from 127.64 on.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high % 64 + 128, middle, low)
}

#[test]
fn up_with_two_clusters_serves_moves_and_stops_without_leaving_anybody_behind() {
    let _alone = alone();
    let workspace = Workspace::new("up-clusters").unwrap();
    let host = own_host();
    phase("it comes up and says where everything is");
    let host_words = host.to_string();
    let args = ["up", "--clusters", "2", "--host", &host_words, "--dir", "files"];
    let mut up = ChildSpec::new("up", symphony().unwrap(), args, workspace.path()).spawn().unwrap();
    let out = workspace.file("up.out");
    let printed = || {
        let output = std::fs::read_to_string(&out)?;
        anyhow::ensure!(output.contains("stop with Ctrl-C"), "it said: {output}");
        Ok(output)
    };
    let output = up.wait_until("its ports", READY_WITHIN, printed).unwrap();
    assert!(output.contains("of 2 clusters is up") && output.contains(&format!("gRPC {host}:8001")), "{output}");

    phase("a model is loaded, served, and moves to the other cluster");
    let pki = workspace.file("files").join("pki").display().to_string();
    let named = format!("--federation={host}:7501,{host}:7511,{host}:7521");
    let cli = |args: &[&str]| {
        let args = [args, &[named.as_str()]].concat();
        run(workspace.path(), &[("SYMPHONY_PKI", pki.as_str())], &args).unwrap()
    };
    let load = ["model", "load", "m", "--emulated", "--alpha-ms", "1", "--beta-ms", "5", "--slo-ms", "500"];
    let _ = cli(&load).ended_with(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rest = RestClient::new(&format!("{host}:8000"));
    let served = || runtime.block_on(async { rest.check_emulated("m", 1.0).await });
    wait_until("the model to be served", READY_WITHIN, served).unwrap();
    let view = || -> serde_json::Value {
        let output = cli(&["get", "clusters", "-o", "json"]).ended_with(0);
        serde_json::from_str(&output.out).unwrap()
    };
    let before = view();
    assert_eq!(before["clusters"].as_array().map(Vec::len), Some(2), "{before}");
    let home = before["models"][0]["home"].as_str().unwrap().to_owned();
    let clusters = before["clusters"].as_array().unwrap().iter();
    let other = clusters.filter_map(|cluster| cluster["name"].as_str()).find(|name| *name != home).unwrap().to_owned();
    let moved = cli(&["plan", "move", "--model", "m", "--to-cluster", &other]).ended_with(0);
    assert!(moved.out.contains(&format!("at home in cluster {other}")), "{moved:?}");
    wait_until("the model to be served there", READY_WITHIN, served).unwrap();

    phase("its processes are its own: those of both clusters, three above them, and a frontend");
    let words = workspace.file("files").display().to_string();
    let (schedulers, backends, top, frontends) = (2 * 3, 2, 3, 1);
    let running = processes_with(&words);
    assert_eq!(running.len(), schedulers + backends + top + frontends, "{running:#?}");

    phase("told to stop, it stops them all and ends with success");
    let status = up.stop(STOPS_WITHIN).unwrap();
    assert_eq!(status.code(), Some(0), "{}", up.log_tail());
    assert_eq!(processes_with(&words), Vec::<String>::new());
    for port in [7001, 7501, 8001, 9001] {
        std::net::TcpListener::bind((host, port)).unwrap_or_else(|e| panic!("port {port} is still held: {e}"));
    }
}

#[test]
fn clusters_listen_on_loopback_only() {
    let workspace = Workspace::new("up-clusters-words").unwrap();
    let ended = run(workspace.path(), &[], &["up", "--clusters", "2", "--host", "10.0.0.1"]).unwrap().ended_with(2);
    ended.complains(&["--host", "10.0.0.1", "loopback"]);
}

#[test]
fn what_only_clusters_have_is_refused_without_them() {
    let workspace = Workspace::new("up-clusters-words").unwrap();
    // Without --with-models the command line itself could say so; with it, `requires` of clap is waived.
    for more in [&[][..], &["--with-models"], &["--autoscale", "1..2"]] {
        let args = [&["up", "--unreachable-ms", "5000"], more].concat();
        run(workspace.path(), &[], &args).unwrap().ended_with(2).complains(&["--unreachable-ms", "--clusters"]);
    }
}
