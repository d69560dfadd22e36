//! `symphony up`: a cluster that runs until it is stopped.

use std::time::Duration;

use symphony_testkit::{ChildSpec, Workspace, free_ports, wait_until};
use symphony_tests::{RestClient, alone, emulated_model, phase, run, symphony};

use super::up_clusters::own_host;

const READY_WITHIN: Duration = Duration::from_secs(120);
const STOPS_WITHIN: Duration = Duration::from_secs(120);

/// Processes whose command line has these words, of all that this user may look at.
pub(crate) fn processes_with(words: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let command_lines = entries.filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        let bytes = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
    });
    command_lines.filter(|line| line.contains(words)).collect()
}

/// One replica, one emulated backend, all ports free.
fn config() -> (String, Vec<u16>) {
    let ports = free_ports(10).unwrap();
    let [control, dispatch, beat, scheduler, grpc, rest, metrics, data, exec, backend] = ports[..] else {
        panic!("ten ports")
    };
    let text = format!(
        "[cluster]\nname = \"up\"\ntiming = \"relaxed\"\n[[cluster.scheduler]]\nid = 1\n\
         control = \"127.0.0.1:{control}\"\ndispatch = \"127.0.0.1:{dispatch}\"\nbeat = \"127.0.0.1:{beat}\"\n\
         [scheduler]\nid = 1\ndata_dir = \"raft\"\nmetrics = \"127.0.0.1:{scheduler}\"\n\
         [scheduler.delays]\nreply_us = 40000\nguard_us = 60000\n\
         [frontend]\nname = \"f\"\ngrpc = \"127.0.0.1:{grpc}\"\nrest = \"127.0.0.1:{rest}\"\n\
         metrics = \"127.0.0.1:{metrics}\"\ndata = \"127.0.0.1:{data}\"\nanswer_grace_ms = 2000\n\
         [backend]\nname = \"b\"\nexec = \"127.0.0.1:{exec}\"\nmetrics = \"127.0.0.1:{backend}\"\n\
         executor = \"emulated\"\ngpus = [{{ kind = \"emulated\", count = 2, memory_mb = 4096 }}]\n"
    );
    (text, ports)
}

#[test]
fn up_starts_serves_and_stops_without_leaving_anybody_behind() {
    let _alone = alone();
    let workspace = Workspace::new("up").unwrap();
    let (text, ports) = config();
    workspace.write("up.toml", &text).unwrap();
    phase("it comes up, elsewhere than its configuration says, and says where everything is");
    let host = own_host().to_string();
    let args = ["up", "--config", "up.toml", "--dir", "files", "--host", &host];
    let mut up = ChildSpec::new("up", symphony().unwrap(), args, workspace.path()).spawn().unwrap();
    let out = workspace.file("up.out");
    let told = || {
        let said = std::fs::read_to_string(&out)?;
        anyhow::ensure!(said.contains("stop with Ctrl-C"), "it said: {said}");
        Ok(said)
    };
    let said = up.wait_until("its ports", READY_WITHIN, told).unwrap();
    assert!(said.contains(&format!("gRPC {host}:{}", ports[4])), "{said}");
    assert!(said.contains("--pki or SYMPHONY_PKI"), "{said}");
    assert!(said.contains(&format!("console: http://{host}:{}/", ports[6])), "{said}");

    phase("it serves");
    let cluster = format!("{host}:{}", ports[0]);
    let pki = workspace.file("files").join("pki").display().to_string();
    assert!(said.contains(&format!("export SYMPHONY_CLUSTER={cluster} SYMPHONY_PKI={pki}")), "{said}");
    let env = [("SYMPHONY_CLUSTER", cluster.as_str()), ("SYMPHONY_PKI", pki.as_str())];
    let _ = run(workspace.path(), &env, &emulated_model("resnet", "default")).unwrap().ended_with(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let served = || {
        runtime.block_on(async { RestClient::new(&format!("{host}:{}", ports[5])).check_emulated("resnet", 1.0).await })
    };
    wait_until("resnet to be served", READY_WITHIN, served).unwrap();

    phase("its console and every process's metrics are there");
    for port in [ports[3], ports[6], ports[9]] {
        let client = RestClient::new(&format!("{host}:{port}"));
        let page = runtime.block_on(async { client.get("/").await }).unwrap();
        assert!(page.status == 200 && page.body.contains("<html"), "console on {port}");
        let metrics = runtime.block_on(async { client.get("/metrics").await }).unwrap();
        assert!(metrics.body.contains("\n# TYPE symphony_build_info gauge\n"), "metrics on {port}");
    }

    phase("its processes are its own: one for each role");
    let words = workspace.file("files").display().to_string();
    assert_eq!(processes_with(&words).len(), 3, "{:?}", processes_with(&words));

    phase("told to stop, it stops them all and ends with success");
    let status = up.stop(STOPS_WITHIN).unwrap();
    assert_eq!(status.code(), Some(0), "{}", up.log_tail());
    assert_eq!(processes_with(&words), Vec::<String>::new());
    for port in ports {
        std::net::TcpListener::bind((host.as_str(), port)).unwrap_or_else(|e| panic!("port {port} is still held: {e}"));
    }
}
