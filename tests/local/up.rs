//! `symphony up`: a cluster that runs until it is stopped.

use std::os::unix::net::UnixDatagram;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use symphony_testkit::{Child, ChildSpec, Workspace, free_ports, wait_until};
use symphony_tests::{RestClient, alone, emulated_model, phase, run, symphony};

use super::up_clusters::own_host;

const READY_WITHIN: Duration = Duration::from_secs(120);
const STOPS_WITHIN: Duration = Duration::from_secs(120);

/// Processes whose command line has these words, of all that this user may look at.
pub(crate) fn processes_with(words: &str) -> Vec<String> {
    ids_with(words).into_iter().map(|(_, line)| line).collect()
}

/// The same with their ids.
fn ids_with(words: &str) -> Vec<(i32, String)> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let command_lines = entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let bytes = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some((id, String::from_utf8_lossy(&bytes).replace('\0', " ")))
    });
    command_lines.filter(|(_, line)| line.contains(words)).collect()
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
    let printed = || {
        let output = std::fs::read_to_string(&out)?;
        anyhow::ensure!(output.contains("stop with Ctrl-C"), "it said: {output}");
        Ok(output)
    };
    let output = up.wait_until("its ports", READY_WITHIN, printed).unwrap();
    assert!(output.contains(&format!("gRPC {host}:{}", ports[4])), "{output}");
    assert!(output.contains("--pki or SYMPHONY_PKI"), "{output}");
    assert!(output.contains(&format!("console: http://{host}:{}/", ports[6])), "{output}");

    phase("it serves");
    let cluster = format!("{host}:{}", ports[0]);
    let pki = workspace.file("files").join("pki").display().to_string();
    assert!(output.contains(&format!("export SYMPHONY_CLUSTER={cluster} SYMPHONY_PKI={pki}")), "{output}");
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

// Arguments of `env`, which runs a program with this disposition.
const HANGUPS_IGNORED: &str = "--ignore-signal=HUP";
const HANGUPS_TAKEN: &str = "--default-signal=HUP";

/// A cluster of `up` in `workspace`, and the words that its processes have in common. `hangups` says with which
/// disposition of SIGHUP it starts: the test's own may be either.
fn up(workspace: &Workspace, text: &str, hangups: &str) -> (Child, String) {
    up_in(workspace, text, &[hangups], &[])
}

/// The same with these arguments of `env`, and `more` of `up`.
fn up_in(workspace: &Workspace, text: &str, environment: &[&str], more: &[&str]) -> (Child, String) {
    workspace.write("up.toml", text).unwrap();
    let dir = workspace.file("files").display().to_string();
    let program = symphony().unwrap().display().to_string();
    let mut args = environment.to_vec();
    args.extend([program.as_str(), "up", "--config", "up.toml", "--dir", dir.as_str()]);
    args.extend(more);
    let mut up = ChildSpec::new("up", "env", args, workspace.path()).spawn().unwrap();
    let out = workspace.file("up.out");
    let printed = || {
        let output = std::fs::read_to_string(&out)?;
        anyhow::ensure!(output.contains("stop with Ctrl-C"), "it said: {output}");
        Ok(())
    };
    up.wait_until("its ports", READY_WITHIN, printed).unwrap();
    // With the slash, which `up` itself does not have.
    (up, format!("{dir}/"))
}

fn wait_until_none_is_left(words: &str) {
    let gone = || {
        let left = processes_with(words);
        anyhow::ensure!(left.is_empty(), "{left:?}");
        Ok(())
    };
    wait_until("all its processes to end", STOPS_WITHIN, gone).unwrap();
}

#[test]
fn however_up_ends_nobody_is_left_behind() {
    let _alone = alone();
    let workspace = Workspace::new("up-ends").unwrap();
    let (text, ports) = config();
    for (signal, hangups) in [(Signal::SIGKILL, HANGUPS_IGNORED), (Signal::SIGHUP, HANGUPS_TAKEN)] {
        phase(&format!("it runs, and is sent {signal}"));
        let (mut up, words) = up(&workspace, &text, hangups);
        let all = || {
            let found = processes_with(&words);
            anyhow::ensure!(found.len() == 3, "{found:?}");
            Ok(())
        };
        wait_until("its three processes", READY_WITHIN, all).unwrap();
        if signal == Signal::SIGKILL {
            phase("it outlives its terminal where it was told to; another one says who has its ports and its folder");
            up.signal(Signal::SIGHUP).unwrap();
            let holder = [
                "Address already in use",
                &format!("127.0.0.1:{}", ports[0]),
                "by process ",
                "symphony scheduler --config",
            ];
            let _ = run(workspace.path(), &[], &["up", "--config", "up.toml", "--dir", "other"])
                .unwrap()
                .ended_with(2)
                .complains(&holder);
            let holder = format!("another `symphony up` (process {})", up.id());
            let _ = run(workspace.path(), &[], &["up", "--config", "up.toml", "--dir", "files"])
                .unwrap()
                .ended_with(2)
                .complains(&[&holder]);
        }
        up.signal(signal).unwrap();
        let status = up.wait(STOPS_WITHIN).unwrap();
        if signal == Signal::SIGHUP {
            assert_eq!(status.code(), Some(0), "as with Ctrl-C: {}", up.log_tail());
        }
        phase("the others end by themselves");
        wait_until_none_is_left(&words);
        for port in &ports {
            std::net::TcpListener::bind(("127.0.0.1", *port))
                .unwrap_or_else(|e| panic!("port {port} is still held: {e}"));
        }
    }
}

#[test]
fn replicas_that_are_provisioned_end_although_nobody_is_left_to_stop_them() {
    let _alone = alone();
    let workspace = Workspace::new("up-scaled").unwrap();
    let (mut up, words) = up_in(&workspace, &config().0, &[HANGUPS_TAKEN], &["--autoscale", "1..2"]);
    let running = ids_with(&words);
    assert!(running.iter().any(|(_, line)| line.contains("b-0.toml")), "{running:?}");

    phase("`up` and what provisions are killed");
    let provision = running.iter().find(|(_, line)| line.contains(" provision ")).unwrap().0;
    kill(Pid::from_raw(provision), Signal::SIGKILL).unwrap();
    up.signal(Signal::SIGKILL).unwrap();
    up.wait(STOPS_WITHIN).unwrap();
    wait_until_none_is_left(&words);
}

#[test]
fn a_hangup_reloads_what_can_be_reloaded_and_ends_no_node() {
    let _alone = alone();
    let workspace = Workspace::new("hangup").unwrap();
    let (text, ports) = config();
    let (mut up, words) = up(&workspace, &text, HANGUPS_TAKEN);
    let before: Vec<_> = ids_with(&words).into_iter().map(|(id, _)| id).collect();

    phase("each is told of a level that may change and of a key that may not");
    for (name, key) in [("scheduler-1", "data_us_max"), ("f", "requests_in_flight_max"), ("b", "pool_mb")] {
        let path = workspace.file("files").join(format!("{name}.toml"));
        let lines = std::fs::read_to_string(&path).unwrap();
        let changed = lines.lines().map(|line| match line.split_once(" = ") {
            Some(("level", _)) => "level = \"debug\"".to_owned(),
            Some((found, value)) if found == key => format!("{key} = {}", value.parse::<u64>().unwrap() / 2),
            _ => line.to_owned(),
        });
        std::fs::write(&path, changed.collect::<Vec<_>>().join("\n")).unwrap();
    }
    for id in &before {
        kill(Pid::from_raw(*id), Signal::SIGHUP).unwrap();
    }
    for (name, key) in [("scheduler-1", "data_us_max"), ("f", "requests_in_flight_max"), ("b", "pool_mb")] {
        let log = workspace.file("files").join("logs").join(format!("{name}.log"));
        let reloaded = || {
            let logged = std::fs::read_to_string(&log)?;
            let line = logged.lines().find(|line| line.contains("some changes need a restart"));
            let line = line.ok_or_else(|| anyhow::anyhow!("{name} said: {logged}"))?;
            anyhow::ensure!(line.contains(key) && line.contains("log.level"), "{line}");
            anyhow::ensure!(logged.contains("DEBUG"), "{name} does not log more");
            Ok(())
        };
        wait_until(&format!("{name} to reload"), READY_WITHIN, reloaded).unwrap();
    }

    phase("a configuration that is wrong changes nothing");
    let path = workspace.file("files").join("f.toml");
    std::fs::write(&path, "[frontend]\nnonsense = 1\n").unwrap();
    for (id, line) in ids_with(&words) {
        if line.contains("f.toml") {
            kill(Pid::from_raw(id), Signal::SIGHUP).unwrap();
        }
    }
    let log = workspace.file("files").join("logs").join("f.log");
    let reloaded = || {
        let logged = std::fs::read_to_string(&log)?;
        anyhow::ensure!(logged.contains("was not reloaded") && logged.contains("nonsense"), "it said: {logged}");
        Ok(())
    };
    wait_until("the frontend to refuse", READY_WITHIN, reloaded).unwrap();

    phase("they are the same processes as before, and serve");
    let after: Vec<_> = ids_with(&words).into_iter().map(|(id, _)| id).collect();
    assert_eq!(before, after);
    let health = ["health", "scheduler", "--config", "files/scheduler-1.toml"];
    let ready = run(workspace.path(), &[], &health).unwrap().ended_with(0);
    assert_eq!(ready.out, "ready\n");
    let health = ["health", "backend", "--live", "--config", "files/b.toml"];
    let live = run(workspace.path(), &[], &health).unwrap().ended_with(0);
    assert_eq!(live.out, "live\n");
    let metrics = format!("frontend.metrics=127.0.0.1:{}", ports[6]);
    let health = ["health", "frontend", "--config", "up.toml", "--insecure-dev", "--set", &metrics];
    let _ = run(workspace.path(), &[], &health).unwrap().ended_with(0);
    let _ = up.stop(STOPS_WITHIN).unwrap();
    let health = ["health", "scheduler", "--config", "files/scheduler-1.toml"];
    let _ = run(workspace.path(), &[], &health).unwrap().ended_with(1).complains(&["does not answer"]);
}

#[test]
fn a_service_manager_hears_that_nodes_are_ready_alive_reloading_and_stopping() {
    let _alone = alone();
    let workspace = Workspace::new("notify").unwrap();
    // A socket's path may be 108 bytes long, and the workspace's is often longer.
    let path = std::env::temp_dir().join(format!("symphony-notify-{}", std::process::id()));
    let socket = UnixDatagram::bind(&path).unwrap();
    let (sender, words) = mpsc::channel();
    // The sender waits until the message is read.
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length) = socket.recv(&mut buffer) {
            for word in String::from_utf8_lossy(&buffer[..length]).lines() {
                let _ = sender.send(word.to_owned());
            }
        }
    });
    let expect_message = |word: &str, times: usize| {
        let until = Instant::now() + READY_WITHIN;
        let mut left = times;
        while left > 0 {
            let within = until.saturating_duration_since(Instant::now());
            let message = words.recv_timeout(within).unwrap_or_else(|_| panic!("{word} is missing {left} times"));
            left -= usize::from(message.starts_with(word));
        }
    };
    let address = format!("NOTIFY_SOCKET={}", path.display());
    let (mut up, all) = up_in(&workspace, &config().0, &[HANGUPS_TAKEN, &address, "WATCHDOG_USEC=600000"], &[]);
    phase("all three are ready and give signs of life");
    expect_message("READY=1", 3);
    expect_message("WATCHDOG=1", 6);

    phase("the frontend reloads, and says what came of it");
    let frontends = ids_with(&all).into_iter().filter(|(_, line)| line.contains("f.toml"));
    for (id, _) in frontends {
        kill(Pid::from_raw(id), Signal::SIGHUP).unwrap();
    }
    expect_message("RELOADING=1", 1);
    expect_message("STATUS=the configuration was reloaded: nothing has changed", 1);
    expect_message("WATCHDOG=1", 3);

    phase("told to stop, they say so");
    let status = up.stop(STOPS_WITHIN).unwrap();
    assert_eq!(status.code(), Some(0), "{}", up.log_tail());
    expect_message("STOPPING=1", 3);
    std::fs::remove_file(path).unwrap();
}
