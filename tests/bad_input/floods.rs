//! Callers at the public ports who send without end, and never read what they are answered.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use symphony_tests::{Shape, emulated_model, phase, tell};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::connections::{HTTP2_BEGINS, LIVE, METRICS, answer, is_served, resident_bytes};

/// How much one of them sends, or for how long, unless it is stopped before.
const FLOOD_BYTES: usize = 64 << 20;
const FLOOD_FOR: Duration = Duration::from_secs(10);
/// A server that takes nothing for this time has stopped a flood.
const STALLED: Duration = Duration::from_secs(3);
/// What a flood may cost the frontend: half of what was sent, far above what buffers of one connection hold.
const COST_MAX: u64 = 32 << 20;
/// Frames or requests that are written at once.
const AT_ONCE: u32 = 1000;

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags][..], &stream.to_be_bytes()[..], payload].concat()
}

/// The headers of a call for which no key is needed.
fn headers() -> Vec<u8> {
    let path = b"/inference.GRPCInferenceService/ServerLive";
    let method_scheme_path = [0x83, 0x86, 0x04, path.len() as u8];
    let others = b"\x01\x01x\x0f\x10\x10application/grpc\x00\x02te\x08trailers";
    [&method_scheme_path[..], &path[..], &others[..]].concat()
}

/// Calls that are given up at once.
fn resets(round: u32) -> Vec<u8> {
    let calls = (0..AT_ONCE).map(|call| 2 * (AT_ONCE * round + call) + 1);
    calls.flat_map(|stream| [frame(1, 4, stream, &headers()), frame(3, 0, stream, &[0, 0, 0, 8])].concat()).collect()
}

/// Headers of one call that do not end.
fn continuations(round: u32) -> Vec<u8> {
    let begin = if round == 0 { frame(1, 0, 1, &headers()) } else { Vec::new() };
    let more = frame(9, 0, 1, &b"\x00\x01a\x01b".repeat(3000));
    [begin, more.repeat(4)].concat()
}

fn pings(_: u32) -> Vec<u8> {
    frame(6, 0, 0, &[0; 8]).repeat(AT_ONCE as usize)
}

fn settings(_: u32) -> Vec<u8> {
    frame(4, 0, 0, &[]).repeat(AT_ONCE as usize)
}

fn rest_requests(_: u32) -> Vec<u8> {
    b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n".repeat(AT_ONCE as usize)
}

fn metrics_requests(_: u32) -> Vec<u8> {
    b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(AT_ONCE as usize)
}

/// Sends until it is stopped; returns how many bytes were taken.
async fn flood(to: SocketAddr, begins: &[u8], round: fn(u32) -> Vec<u8>) -> usize {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(begins).await.unwrap();
    let (began, mut sent) = (Instant::now(), 0);
    for number in 0.. {
        let words = round(number);
        let taken = tokio::time::timeout(STALLED, stream.write_all(&words)).await;
        if !matches!(taken, Ok(Ok(()))) {
            break;
        }
        sent += words.len();
        if sent > FLOOD_BYTES || began.elapsed() > FLOOD_FOR {
            break;
        }
    }
    sent
}

#[test]
fn floods_cost_bounded_memory_and_others_nothing() {
    type Flood = (&'static str, &'static str, &'static [u8], fn(u32) -> Vec<u8>);
    let floods: [Flood; 6] = [
        ("calls that are reset at once", "grpc", HTTP2_BEGINS, resets),
        ("headers without end", "grpc", HTTP2_BEGINS, continuations),
        ("pings", "grpc", HTTP2_BEGINS, pings),
        ("settings", "grpc", HTTP2_BEGINS, settings),
        ("requests whose answers nobody reads", "rest", b"", rest_requests),
        ("scrapes that nobody reads", "metrics", b"", metrics_requests),
    ];
    tell("floods", &Shape::emulated(&["default"]), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        for (what, key, begins, round) in floods {
            phase(&format!("{what}, at `{key}`"));
            let address: SocketAddr = cluster.address("frontend", key).parse().unwrap();
            let process = cluster.process_id("frontend").unwrap();
            let before = resident_bytes(process);
            cluster.block_on(async {
                let rest = cluster.rest();
                let served = async { rest.check_emulated_in_any_time("resnet", 3.0).await };
                let (sent, served) = tokio::join!(flood(address, begins, round), served);
                served.unwrap();
                let cost = resident_bytes(process).saturating_sub(before);
                eprintln!("{what}: {} KiB were taken, {} KiB more in use", sent >> 10, cost >> 10);
                assert!(cost < COST_MAX, "{what}: {cost} bytes");
                for (key, words) in [("grpc", HTTP2_BEGINS), ("rest", LIVE), ("metrics", METRICS)] {
                    let stream = TcpStream::connect(cluster.address("frontend", key)).await.unwrap();
                    let served = answer(stream, words).await;
                    assert!(is_served(&served), "{what}, then {key}: {served:?}");
                }
            });
        }
        assert_eq!(cluster.ended().unwrap(), None);
    });
}
