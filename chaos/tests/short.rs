//! A few scenarios, one round each, on the programs of this build: safety only, since the machine may be busy with
//! other work. Needs neither root nor anything that a machine may lack.

use std::path::{Path, PathBuf};

use symphony_chaos::{
    FaultState, FederationScenario, Links, Outcome, Report, RunPlan, Scenario, Times, run, run_federation,
};
use symphony_config::Timing;
use tokio::sync::Mutex;

/// One cluster at a time, also where tests are threads.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Runs of a scenario at most: one that says nothing of the system, since the machine was busy, is repeated.
const RUNS_MAX: u64 = 3;

/// The program `symphony`, as the build left it beside this test's own program.
fn symphony() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    // target/PROFILE/deps/TEST → target/PROFILE/symphony
    let program = own.parent().and_then(Path::parent).unwrap().join("symphony");
    assert!(program.is_file(), "{} is missing; build it first: cargo build -p symphony --bins", program.display());
    program
}

async fn one_round(name: &str) -> Report {
    let _alone = ALONE.lock().await;
    let mut report = run_once(name, 1).await;
    for seed in 2..=RUNS_MAX {
        if report.outcome == Outcome::Harness {
            eprintln!("again, with seed {seed}: {}", report.table());
            report = run_once(name, seed).await;
        }
    }
    assert_eq!(report.outcome, Outcome::Pass, "{}", report.table());
    assert!(report.faults.iter().all(|fault| fault.state == FaultState::Installed), "{}", report.table());
    assert_eq!((report.stale_tokens_accepted, report.overlapping_batches), (Some(0), Some(0)));
    assert_eq!(report.admin_linearizable, Some(true));
    report
}

async fn run_once(name: &str, seed: u64) -> Report {
    let plan = plan(seed);
    match FederationScenario::named(name).unwrap() {
        Some(scenario) => run_federation(&scenario, &plan).await.unwrap(),
        None => run(&Scenario::named(name).unwrap(), &plan).await.unwrap(),
    }
}

fn plan(seed: u64) -> RunPlan {
    RunPlan {
        binary: symphony(),
        repeat: Some(1),
        seed,
        timing: Some(Timing::Relaxed),
        links: Some(Links::Proxied),
        // Safety holds whatever batches take.
        noise: Some(0.05),
        times: Times::Reported,
        keep: false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subcluster_leader_that_is_killed_is_replaced_and_breaks_nothing() {
    let report = one_round("kill-subcluster-leader").await;
    assert!(report.named_after_ms.n == 1 && report.ledger.in_time > 0, "{}", report.table());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_of_a_stage_that_is_killed_is_replaced_and_breaks_nothing() {
    let report = one_round("kill-leader-of-a-stage").await;
    assert!(report.named_after_ms.n == 1 && report.ledger.in_time > 0, "{}", report.table());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subcluster_leader_behind_cut_links_is_replaced_and_breaks_nothing() {
    let report = one_round("partition-symmetric").await;
    assert!(report.network == "proxied" && report.named_after_ms.n == 1, "{}", report.table());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_is_killed_comes_back_in_a_new_boot_and_breaks_nothing() {
    let report = one_round("backend-restart").await;
    assert!(report.batches > 0, "{}", report.table());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_hangs_is_seen_to_be_down_and_breaks_nothing() {
    let report = one_round("pause-backend").await;
    assert!(report.down_after_ms.n == 1 && report.batches > 0, "{}", report.table());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_behind_cut_links_is_seen_to_be_down_comes_back_and_breaks_nothing() {
    let report = one_round("partition-backend").await;
    assert!(report.network == "proxied" && report.down_after_ms.n == 1, "{}", report.table());
    assert!(report.batches > 0, "{}", report.table());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_processes_killed_at_once_come_back_and_break_nothing() {
    let report = one_round("everything-killed").await;
    assert!(report.faults.len() == 3 && report.writes_lost == 0 && report.whole_after_ms.n == 1, "{}", report.table());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_come_and_go_break_nothing() {
    let report = one_round("membership-churn").await;
    assert!(report.faults.len() == 4 && report.writes_lost == 0, "{}", report.table());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_and_backends_that_move_fail_no_request() {
    let report = one_round("moves").await;
    // That none fails while things move is this scenario's promise; reasons for which a busy machine is enough do not
    // count here.
    assert!(report.ledger.in_time > 0 && report.writes_lost == 0, "{}", report.table());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_models_of_a_cluster_that_is_killed_are_served_by_the_other_one() {
    let report = one_round("federation-cluster-killed").await;
    assert!(report.named_after_ms.n == 1 && report.views_compared > 0, "{}", report.table());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_between_clusters_go_on_when_the_leader_above_them_is_killed() {
    let report = one_round("federation-leader-killed").await;
    assert!(report.faults.len() == 4 && report.writes_lost == 0, "{}", report.table());
}
