//! Connections that are opened and forgotten.

use std::net::SocketAddr;
use std::time::Duration;

use symphony_net::{Expected, Role};
use symphony_tests::{Shape, emulated_model, phase, tell};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// Connections of one address at the frontend's public ports here.
const PER_ADDRESS: usize = 32;
/// Connections that one address may have at a metrics port.
const METRICS_PER_ADDRESS: usize = 64;
/// More than the deadline for the first words, by much: this machine may be busy.
const CLOSED_WITHIN: Duration = Duration::from_secs(60);
/// How long a handshake may take that has the crowd before it.
const SERVED_WITHIN: Duration = Duration::from_secs(20);
/// Connections of one caller that opens them without end, at each kind of port; fewer if this process may not have as
/// many files open.
const CROWD: usize = 4096;
/// Files that this process has open beside them.
const OTHER_FILES: usize = 256;
/// What each may cost the process at the other end: buffers of HTTP/2 and of the kind of task that waits for it.
const BYTES_EACH_MAX: u64 = 16 << 10;
/// A client's first words over HTTP/2: the preface, and settings without a word.
pub(super) const HTTP2_BEGINS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
pub(super) const LIVE: &[u8] = b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
pub(super) const METRICS: &[u8] = b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

/// Connects from another address of this host than everybody else has.
async fn connect_from_elsewhere(to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.9:0".parse().unwrap()).unwrap();
    socket.connect(to).await.unwrap_or_else(|error| panic!("{to} takes no connections: {error}"))
}

/// The first bytes of the answer; none if the connection is closed.
pub(super) async fn answer(mut stream: TcpStream, words: &[u8]) -> Vec<u8> {
    let mut answer = vec![0; 16];
    let _ = stream.write_all(words).await;
    let read = stream.read(&mut answer).await.unwrap_or(0);
    answer.truncate(read);
    answer
}

/// Served at a public port, in HTTP/1 or HTTP/2 as the words are.
pub(super) fn is_served(answer: &[u8]) -> bool {
    answer.starts_with(b"HTTP/1.1 200") || answer.get(3) == Some(&4)
}

#[test]
fn idle_connections_keep_nobody_else_out_and_are_closed_in_time() {
    let shape = Shape::emulated(&["default"]).with(&format!("frontend.connections_per_address_max={PER_ADDRESS}"));
    tell("idle-connections", &shape, |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        let port = |role: &str, key: &str| {
            let (_, _, address) = cluster.addresses().into_iter().find(|(r, k, _)| r == role && *k == key).unwrap();
            address.parse::<SocketAddr>().unwrap()
        };
        let ports = [
            (port("frontend", "grpc"), HTTP2_BEGINS, PER_ADDRESS),
            (port("frontend", "rest"), LIVE, PER_ADDRESS),
            (port("frontend", "metrics"), METRICS, METRICS_PER_ADDRESS),
            (port("scheduler-1", "metrics"), METRICS, METRICS_PER_ADDRESS),
        ];
        let (control, operator) = (port("scheduler-1", "control").to_string(), cluster.net(Role::Operator, "admin"));
        cluster.block_on(async {
            phase("one address opens all that it may at every public port, and says nothing or half of it");
            let mut idle = Vec::new();
            for &(address, words, count) in &ports {
                for number in 0..count {
                    let mut stream = connect_from_elsewhere(address).await;
                    stream.write_all(&words[..number % 20]).await.unwrap();
                    idle.push(stream);
                }
            }
            phase("one with a certificate says nothing at a control port");
            let mut authenticated = operator.dial(&control, &Role::Scheduler.into()).await.unwrap();
            phase("the next one from there is closed, those of others are served");
            for &(address, words, _) in &ports {
                assert!(answer(connect_from_elsewhere(address).await, words).await.is_empty(), "{address}");
                let served = answer(TcpStream::connect(address).await.unwrap(), words).await;
                assert!(is_served(&served), "{address}: {served:?}");
            }
            cluster.rest().check_emulated_in_any_time("resnet", 3.0).await.unwrap();

            phase("the idle ones are closed, and who comes from there is served again");
            let closed = tokio::time::timeout(CLOSED_WITHIN, authenticated.read_to_end(&mut Vec::new())).await;
            assert!(closed.is_ok(), "{control} keeps who says nothing");
            for mut stream in idle {
                let closed = tokio::time::timeout(CLOSED_WITHIN, stream.read_to_end(&mut Vec::new())).await;
                assert!(closed.is_ok(), "{:?} stays open", stream.peer_addr());
            }
            for &(address, words, _) in &ports {
                let served = answer(connect_from_elsewhere(address).await, words).await;
                assert!(is_served(&served), "{address}: {served:?}");
            }
        });
        assert_eq!(cluster.ended().unwrap(), None);
    });
}

/// Bytes of memory that a process has in use.
pub(super) fn resident_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// The callers of an internal port, their names here, and the peers that they expect.
fn caller_of(key: &str) -> Option<(Role, &'static str, Expected)> {
    match key {
        "control" => Some((Role::Operator, "admin", Role::Scheduler.into())),
        "dispatch" => Some((Role::Frontend, "frontend", Role::Scheduler.into())),
        "beat" => Some((Role::Scheduler, "2", Role::Scheduler.into())),
        "exec" => Some((Role::Scheduler, "2", Role::Backend.into())),
        "data" => Some((Role::Backend, "backend-default", Role::Frontend.into())),
        _ => None,
    }
}

/// Files that this process may have open.
fn open_files_max() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap_or(usize::MAX)
}

#[test]
fn thousands_of_idle_connections_at_any_port_keep_nobody_else_out_and_cost_little() {
    let crowd = CROWD.min(open_files_max().saturating_sub(OTHER_FILES));
    tell("idle-crowd", &Shape::emulated(&["default"]), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        let roles = ["frontend", "scheduler-1", "backend-default"];
        let ports = cluster.addresses().into_iter().filter(|(name, _, _)| roles.contains(&name.as_str()));
        for (name, key, address) in ports.collect::<Vec<_>>() {
            phase(&format!("{crowd} connections from one address to `{key}` of {name}, which say nothing"));
            let before = resident_bytes(cluster.process_id(&name).unwrap());
            let address = address.parse::<SocketAddr>().unwrap();
            let idle = cluster.block_on(async {
                let mut idle = Vec::with_capacity(crowd);
                for _ in 0..crowd {
                    idle.push(connect_from_elsewhere(address).await);
                }
                let words = match key {
                    "grpc" => Some(HTTP2_BEGINS),
                    "rest" => Some(LIVE),
                    "metrics" => Some(METRICS),
                    _ => None,
                };
                if let Some(words) = words {
                    let served = answer(TcpStream::connect(address).await.unwrap(), words).await;
                    assert!(is_served(&served), "{address}: {served:?}");
                }
                if let Some((role, caller, expected)) = caller_of(key) {
                    let net = cluster.net(role, caller);
                    let text = address.to_string();
                    let dialled = tokio::time::timeout(SERVED_WITHIN, net.dial(&text, &expected)).await;
                    assert!(matches!(dialled, Ok(Ok(_))), "{key} of {name}: {dialled:?}");
                }
                cluster.rest().check_emulated_in_any_time("resnet", 3.0).await.unwrap();
                let after = resident_bytes(cluster.process_id(&name).unwrap());
                let cost = after.saturating_sub(before);
                eprintln!("{key} of {name}: {} KiB more", cost >> 10);
                assert!(cost < BYTES_EACH_MAX * crowd as u64, "{key} of {name}: {before} and then {after} bytes");
                idle
            });
            // A caller of its own of the control port, while they are all there.
            let _ = cluster.cli(&["get", "members"]).ended_with(0);
            drop(idle);
        }
        assert_eq!(cluster.ended().unwrap(), None);
    });
}
