//! The measurement of frames between two processes, gently: whatever is sent arrives, once and in order, by every way.

use std::path::PathBuf;
use std::time::Duration;

use symphony_benches::frames::{Options, run};

#[test]
fn every_way_carries_requests_from_one_process_to_another() {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_frame-rate"));
    let options =
        Options { program, scheduler_core: 0, rate_for: Duration::from_millis(100), latencies: 150, rdma: false };
    let report = run(&options).unwrap();
    let rates: Vec<_> = report.rates.iter().map(|row| (row.way, row.frame_max)).collect();
    let links = ["link", "link, TLS", "link, shared", "link, spinning"];
    assert_eq!(rates, links.map(|way| [(way, 4096), (way, 1)]).concat());
    for row in &report.rates {
        assert!(row.requests > 0 && row.requests_per_frame >= 1.0 && row.per_core() > 0.0, "{row:?}");
        assert!(row.frame_max > 1 || row.requests_per_frame < 1.0 + f64::EPSILON, "{row:?}");
    }
    let ways: Vec<_> = report.latencies.iter().map(|row| (row.way, row.requests)).collect();
    let expected = ["bare TCP", "link", "link, TLS", "link, shared", "link, spinning"].map(|way| (way, 50));
    assert_eq!(ways, expected, "the first hundred do not count");
    for row in &report.latencies {
        assert!(row.p50_us > 0.0 && row.p50_us <= row.p99_us && row.p99_us <= row.max_us, "{row:?}");
    }
    assert!(report.to_string().contains("requests/s"));
}

#[test]
fn a_process_that_is_no_scheduler_is_an_error() {
    let program = PathBuf::from("/bin/true");
    let options =
        Options { program, scheduler_core: 0, rate_for: Duration::from_millis(10), latencies: 1, rdma: false };
    assert!(run(&options).unwrap_err().to_string().contains("ended"));
}
