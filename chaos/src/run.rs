//! One run: a cluster, load and admin work, rounds of faults, and what became of it all.

mod figures;
pub(crate) mod machine_clock;
mod round;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony::load::Report as LoadReport;
use symphony_config::Timing;
use symphony_protocol::view::View;
use symphony_testkit::{Workspace, wait_until_async};

use crate::admin::{AdminClients, Commits, Story, Written, lost, recorder};
use crate::checker::{Evidence, judge};
use crate::cluster::{Cluster, Place, Process};
use crate::fault::{FaultSpec, Injector};
use crate::journal::{self, Executions};
use crate::load::{self, Fate, GRACE, Observation, RunningLoad};
use crate::report::{Fault, Ledger, Outcome, Report};
use crate::scenario::{Links, Promise, Scenario};
use crate::views::Views;

use figures::{Figures, attainment};
use machine_clock::MachineClock;
use round::{RoundRun, Scene};

/// Undisturbed load before the first round and between rounds; as long is looked at on either side of one.
const CALM: Duration = Duration::from_millis(1000);
/// A random part of it, so that faults do not keep step with heartbeats and elections.
const CALM_RANDOM_MS: u64 = 500;
/// How long the last look at the cluster may take.
const LAST_LOOK_WITHIN: Duration = Duration::from_secs(20);

/// How a scenario shall be run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// The `symphony` program.
    pub binary: PathBuf,
    /// Rounds; the scenario's own number if none.
    pub repeat: Option<u32>,
    /// Everything random comes from it.
    pub seed: u64,
    /// Instead of the scenario's.
    pub timing: Option<Timing>,
    /// Instead of the scenario's, where that can be cut.
    pub links: Option<Links>,
    /// Whether times are judged. On a machine that others use as well, only safety says something.
    pub times: Times,
    /// Keeps configurations, logs, journals and the admin history whatever the outcome.
    pub keep: bool,
}

/// What becomes of times that were promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// One that is not kept is a violation.
    Judged,
    /// They are reported; the load generator may lag.
    Reported,
}

/// The longest lag of the load generator where times are not judged.
const LAG_ANY_MS: f64 = 60_000.0;

/// Runs a scenario on a cluster of its own.
///
/// # Errors
/// If the harness fails: the cluster cannot be started, or evidence cannot be read.
pub async fn run(scenario: &Scenario, plan: &RunPlan) -> Result<Report> {
    let binary = plan.binary.display();
    ensure!(plan.binary.exists(), "no program at {binary}; build it: cargo build --release -p symphony");
    let mut workspace = Workspace::new(&scenario.name)?;
    let mut scenario = scenario.clone();
    if plan.times == Times::Reported {
        scenario.promise = Promise { failed_max: scenario.promise.failed_max, ..Promise::default() };
        (scenario.load.lag_p99_ms, scenario.load.lag_max_ms) = (LAG_ANY_MS, LAG_ANY_MS);
    }
    let ran = Box::pin(run_in(&scenario, plan, &workspace)).await;
    if plan.keep || !matches!(&ran, Ok(report) if report.outcome == Outcome::Pass) {
        workspace.keep();
        eprintln!("configurations, logs, journals and the admin history are in {}", workspace.path().display());
    }
    ran
}

async fn run_in(scenario: &Scenario, plan: &RunPlan, workspace: &Workspace) -> Result<Report> {
    // As the kernel names it: rules about files go by that.
    let dir = &workspace.path().canonicalize()?;
    let timing = plan.timing.unwrap_or(scenario.cluster.timing);
    let links = match (scenario.cluster.links, plan.links) {
        (Links::Cuttable, Some(links)) => links,
        (links, _) => links,
    };
    let interpose = scenario.fault.iter().any(FaultSpec::interposes);
    let place = Place { binary: &plan.binary, dir, timing, links, interpose };
    let mut cluster = Cluster::start(&scenario.cluster, place).await?;
    let network = cluster.network.kind();
    let specs = load::specs(&scenario.model, &cluster.processes.subclusters())?;
    for spec in &specs {
        cluster.load(spec).await?;
    }

    let (began, clock) = (Instant::now(), MachineClock::read()?);
    let views = Views::watch(&cluster.replicas.all());
    let load = RunningLoad::start(&scenario.load, &specs, &cluster.frontends, plan.seed).await?;
    let recorder = recorder(began);
    let commits = Commits::start(cluster.writers.clone(), scenario.load.writes_rps);
    let model = specs.first().context("there is a sub-cluster")?;
    let admin = AdminClients::start(&cluster.replicas, model, scenario.load.admin_clients, plan.seed, &recorder);

    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed);
    let injector = Injector::new(Xoshiro256PlusPlus::seed_from_u64(random.random()), dir.to_owned());
    let observations = load.observations.clone();
    let followed = cluster.processes.replicas().collect();
    let mut scene = Scene { cluster, injector, random, views: &views, observations, models: specs.len(), followed };
    let rounds = plan.repeat.unwrap_or(scenario.repeat);
    let (mut ran, mut broke_down) = (Vec::new(), None);
    for number in 1..=rounds {
        // Load, not synchronisation: this much undisturbed traffic stands before every round.
        let calm = CALM + Duration::from_millis(scene.random.random_range(0..CALM_RANDOM_MS));
        tokio::time::sleep(calm).await;
        match scene.round(scenario, number).await {
            Ok(round) => {
                eprintln!("{}: round {number} of {rounds}: {}", scenario.name, round.words());
                let stopped = round.broke_down.clone();
                ran.push(round);
                if let Some(why) = stopped {
                    broke_down = Some(why);
                    break;
                }
            }
            Err(error) => {
                // A process that ended by itself, or a cluster that was not whole before anything happened.
                broke_down = Some(format!("round {number}: {error:#}"));
                break;
            }
        }
    }
    tokio::time::sleep(CALM).await;

    let mut cluster = scene.cluster;
    let written = commits.finish().await;
    admin.finish().await;
    let observations = load.observations.clone();
    let load = load.finish().await?;
    let observations = observations.all();
    let story = Story::judge(&recorder, &dir.join("admin-history"))?;
    let (ledger, ledger_by) = settle(&mut cluster, &load, &observations, &ran).await;
    let last_view = last_view(&cluster).await;
    let invariant_violations = violations(&cluster).await;
    let journals: Vec<_> = cluster.journals.values().cloned().collect();
    if let Err(error) = cluster.stop_all().await {
        broke_down.get_or_insert(format!("the end: {error:#}"));
    }
    let journals = journals.iter().map(|path| journal::read(path)).collect::<Result<Vec<_>>>()?;
    let executions = journal::judge(&journals);
    let writes_lost = last_view.as_ref().map_or(0, |view| lost(&written, view));
    let (findings, compared, fullest) = {
        let seen = views.seen();
        (seen.findings.clone(), seen.compared, seen.fullest_permille)
    };
    if last_view.is_none() {
        broke_down.get_or_insert("the end: no replica gives a linearizable view".to_owned());
    }

    let models = specs.len();
    let figures =
        Figures { observations: &observations, acked: &written.acked, models, executions: &executions, clock };
    let faults: Vec<Fault> = ran.iter().flat_map(|round| round.faults.clone()).collect();
    let rounds: Vec<_> = ran.iter().map(|round| figures.of(round, scenario)).collect();
    let evidence = Evidence {
        faults: &faults,
        rounds: &rounds,
        ledger,
        foreign: load.total.foreign,
        invariant_violations,
        executions: &executions,
        idle: idle(scenario, &written, &story),
        writes_lost,
        findings: &findings,
        story: &story,
        broke_down: broke_down.as_deref(),
        load_failure: (!load.verdict.passed()).then(|| load.verdict.to_string()),
    };
    let (outcome, reasons) = judge(&evidence, &scenario.promise);
    let complete = executions.missing == 0 && executions.ran > 0;
    let &Executions { stale, overlapping, ran: batches, requests, again, .. } = &executions;
    let summaries = figures::summaries(&rounds);
    Ok(Report {
        scenario: scenario.name.clone(),
        outcome,
        dispatch_gap_ms: summaries.dispatch_gap,
        commit_gap_ms: summaries.commit_gap,
        ledger,
        stale_tokens_accepted: complete.then_some(stale),
        overlapping_batches: complete.then_some(overlapping),
        reasons,
        seed: plan.seed,
        timing,
        network,
        named_after_ms: summaries.named_after,
        gap_before_ms: summaries.gap_before,
        commit_gap_before_ms: summaries.commit_gap_before,
        elsewhere_gap_ms: summaries.elsewhere_gap,
        elsewhere_bad: rounds.iter().map(|round| round.elsewhere_bad).sum(),
        served_on_ms: summaries.served_on,
        obeyed_ms: summaries.obeyed,
        serving_after_ms: summaries.serving_after,
        whole_after_ms: summaries.whole_after,
        slo_attainment: attainment(&observations, &ran),
        aims: figures::aims(&scenario.aim, &summaries, &rounds),
        ledger_by,
        batches,
        requests_executed: requests,
        executed_again: again,
        writes_acknowledged: written.acked.len() as u64,
        writes_lost,
        admin_operations: story.operations,
        admin_operations_open: story.open,
        admin_linearizable: match (&story.contradiction, &story.undecided) {
            (None, None) => Some(true),
            (Some(_), _) => Some(false),
            (None, Some(_)) => None,
        },
        views_compared: compared,
        gpu_memory_fullest: fullest as f64 / 1e3,
        invariant_violations,
        faults,
        rounds,
    })
}

/// The counts when nothing is in flight any more: the frontends', or, where a frontend's life ended and its memory with it,
/// the client's.
async fn settle(
    cluster: &mut Cluster,
    load: &LoadReport,
    observations: &[Observation],
    rounds: &[RoundRun],
) -> (Ledger, &'static str) {
    let (lost, answered_twice) = (load.total.lost, load.total.answered_twice);
    let remembered = !rounds.iter().any(|round| round.ended.iter().any(|p| matches!(p, Process::Frontend(_))));
    if remembered && let Ok(ledger) = frontends_counts(cluster).await {
        return (Ledger { lost, answered_twice, ..ledger }, "frontends");
    }
    let count = |fate| observations.iter().filter(|one| one.fate == fate).count() as u64;
    let ledger = Ledger {
        // What was never answered is in `lost`, and breaks the balance as it should.
        accepted: observations.len() as u64,
        in_time: count(Fate::InTime),
        late: count(Fate::Late),
        dropped: count(Fate::Dropped),
        failed: count(Fate::Failed),
        cancelled: 0,
        lost,
        answered_twice,
    };
    (ledger, "client")
}

pub(crate) async fn frontends_counts(cluster: &Cluster) -> Result<Ledger> {
    wait_until_async("the last outcome", GRACE, || async {
        let mut sum = Ledger::default();
        for frontend in cluster.processes.frontends() {
            let ledger = &cluster.page(frontend).await?["ledger"];
            ensure!(ledger["in_flight"] == 0, "{} in flight", ledger["in_flight"]);
            let count = |key: &str| ledger["counts"][key].as_u64().with_context(|| format!("no `{key}`"));
            sum.accepted += count("accepted")?;
            sum.in_time += count("in_time")?;
            sum.late += count("late")?;
            sum.dropped += count("dropped")?;
            sum.failed += count("failed")?;
            sum.cancelled += count("cancelled")?;
        }
        Ok(sum)
    })
    .await
}

/// Work for the control group that the scenario wants, and of which none was done.
fn idle(scenario: &Scenario, written: &Written, story: &Story) -> Vec<&'static str> {
    let writes = scenario.load.writes_rps > 0.0 && written.acked.is_empty();
    let admin = scenario.load.admin_clients > 0 && story.operations <= story.open;
    [("write", writes), ("call of the admin API", admin)]
        .into_iter()
        .filter(|(_, idle)| *idle)
        .map(|(work, _)| work)
        .collect()
}

/// What the cluster agrees on at the end; none if it does not say.
async fn last_view(cluster: &Cluster) -> Option<View> {
    cluster.control.get(true, LAST_LOOK_WITHIN).await.ok()
}

/// Violations of named invariants that the living processes counted.
async fn violations(cluster: &Cluster) -> u64 {
    let mut sum = 0;
    for process in cluster.processes.all() {
        // A process that cannot say has been found out elsewhere.
        if let Ok(page) = cluster.page(process).await {
            sum += page["invariant_violations"].as_u64().unwrap_or(0);
        }
    }
    sum
}
