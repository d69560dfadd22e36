//! Small bodies that stand for large ones.

use std::io::{Read as _, copy, repeat};

use flate2::Compression;
use flate2::write::GzEncoder;
use symphony_tests::{Shape, emulated_model, phase, tell};

/// The frontend's limit here.
const REQUEST_BYTES_MAX: u64 = 4 << 20;
const BOMB_BYTES: u64 = 1 << 30;
/// Bombs at a time.
const BOMBS: u64 = 8;
/// What each may cost: itself, what it becomes up to the limit and the room in which that grows, and as much again for
/// an allocator's slack.
const BYTES_EACH_MAX: u64 = 8 * REQUEST_BYTES_MAX;
// Or it would show nothing.
const _: () = assert!(BOMBS * BYTES_EACH_MAX < BOMB_BYTES);

/// The most memory that a process has ever had in use.
fn peak_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn bomb() -> Vec<u8> {
    let mut packing = GzEncoder::new(Vec::new(), Compression::best());
    copy(&mut repeat(0).take(BOMB_BYTES), &mut packing).unwrap();
    packing.finish().unwrap()
}

#[test]
fn a_body_that_unpacks_to_a_gibibyte_is_refused_at_the_limit_and_costs_no_more() {
    let shape = Shape::emulated(&["default"]).with(&format!("frontend.request_bytes_max={REQUEST_BYTES_MAX}"));
    tell("bombs", &shape, |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        let bomb = bytes::Bytes::from(bomb());
        assert!((bomb.len() as u64) < REQUEST_BYTES_MAX, "as it travels it is within the limit");

        phase("a gibibyte of zeros, packed, several times at once");
        let before = peak_bytes(cluster.process_id("frontend").unwrap());
        cluster.block_on(async {
            let client = cluster.rest();
            let send = || client.post_with("/v2/models/resnet/infer", &[("content-encoding", "gzip")], bomb.clone());
            let sent: Vec<_> = (0..BOMBS).map(|_| send()).collect();
            for reply in futures::future::join_all(sent).await {
                let reply = reply.unwrap();
                assert_eq!((reply.status, reply.reason().as_str()), (413, "request_too_large"), "{reply:?}");
            }
            client.check_emulated_in_any_time("resnet", 3.0).await.unwrap();
        });
        let after = peak_bytes(cluster.process_id("frontend").unwrap());
        let cost = after.saturating_sub(before);
        eprintln!("{BOMBS} bombs: {} MiB more", cost >> 20);
        assert!(cost < BOMBS * BYTES_EACH_MAX, "{before} and then {after} bytes");
        assert_eq!(cluster.ended().unwrap(), None);
    });
}
