//! `symphony-chaos thousand` with few sub-clusters: what it says of a cluster must be so whatever the machine does
//! meanwhile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use symphony_chaos::{LedBy, Outcome, ThousandPlan, run_thousand};
use symphony_config::Timing;

const SUBCLUSTERS: u32 = 20;
const LOADED: u32 = 3;

fn plan(led_by: LedBy) -> ThousandPlan {
    let player = PathBuf::from(env!("CARGO_BIN_EXE_symphony-chaos"));
    let binary = player.parent().unwrap_or(Path::new(".")).join("symphony");
    assert!(binary.is_file(), "{} is missing; build it first: cargo build -p symphony --bins", binary.display());
    ThousandPlan {
        binary,
        player,
        subclusters: SUBCLUSTERS,
        loaded: LOADED,
        idle: Duration::from_secs(1),
        led_by,
        timing: Timing::Relaxed,
        seed: 1,
        keep: false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_one_replica_led_is_taken_over_by_one_log_entry() {
    let report = run_thousand(&plan(LedBy::One)).await.unwrap();
    assert_eq!(report.outcome, Outcome::Pass, "{}", report.table());
    assert_eq!(report.led_by_victim, SUBCLUSTERS as usize);
    assert_eq!((report.log_entries, report.sealed_after_ms.n), (1, SUBCLUSTERS as usize), "{}", report.table());
    assert_eq!(report.serving_after_ms.n, LOADED as usize);
    let leads: Vec<_> = report.idle.iter().filter(|usage| usage.process.starts_with("scheduler")).collect();
    assert_eq!(leads.len(), 3, "{}", report.table());
    assert_eq!(leads.iter().map(|usage| usage.leads).sum::<usize>(), SUBCLUSTERS as usize);
    assert!(report.idle.iter().all(|usage| usage.rss_mib > 0), "{}", report.table());
    // Two replicas told twenty backends: whole views would have been forty of them at least.
    assert!(report.view_bytes_in_takeover > 0.0, "{}", report.table());
    assert!(report.ledger.accepted > 0 && report.ledger.in_time > 0, "{}", report.table());
}
