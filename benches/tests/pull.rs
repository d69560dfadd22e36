//! The measurement of pulls, gently: every transport exists and carries what it is asked for.

use symphony_benches::pull::{Options, run};

#[test]
fn every_way_is_measured() {
    let rows = run(Options { owners: 3, bytes: 2000, pulls: 40, rdma: false }).unwrap();
    let ways: Vec<_> = rows.iter().map(|row| row.way).collect();
    assert_eq!(ways, ["copy", "copy into new buffers", "shared memory", "TCP loopback", "TCP loopback, mutual TLS"]);
    for row in rows {
        assert!(row.pulls == 40 && row.p50_us > 0.0 && row.p50_us <= row.p99_us && row.p99_us <= row.max_us, "{row:?}");
    }
}

#[test]
fn nothing_to_measure_is_an_error() {
    assert!(run(Options { owners: 0, bytes: 1, pulls: 40, rdma: false }).is_err());
    assert!(run(Options { owners: 1, bytes: 1, pulls: 1, rdma: false }).is_err());
}
