//! One run: a cluster, load and admin work, rounds of faults, and what became of it all.

pub(crate) mod conclusion;
mod figures;
pub(crate) mod machine_clock;
pub(crate) mod round;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_config::{Address, Timing};
use symphony_load::{ModelLoad, Report as LoadReport};
use symphony_protocol::view::{ModelSpec, View};
use symphony_testkit::{Workspace, wait_until_async};
use symphony_types::FailReason;

use crate::admin::{AdminClients, Commits, Story, Written, lost, recorder};
use crate::cluster::{CLUSTER, Cluster, ClusterSetup, Process, page};
use crate::fault::{FaultSpec, Injector};
use crate::journal;
use crate::load::{self, Fate, GRACE, Observation, RunningLoad};
use crate::report::{Ledger, Outcome, Report};
use crate::run_failure::RunFailure;
use crate::scenario::{Links, Load, Promise, Scenario};
use crate::staged::Staged;
use crate::views::Views;

use conclusion::Conclusion;
use machine_clock::MachineClock;
use round::{RoundRun, Scene};

/// Undisturbed load before the first round and between rounds; as long is looked at on either side of one.
pub(crate) const CALM: Duration = Duration::from_millis(1000);
/// A random part of it, so that faults do not keep step with heartbeats and elections.
pub(crate) const CALM_RANDOM_MS: u64 = 500;
/// Said of an error before the first round: what to change, since the run has no report.
pub(crate) const NOT_STARTED: &str =
    "the cluster did not come up; give the run two cores, or the room or the rights that it lacks";
/// How long the last look at the cluster may take.
const LAST_VIEW_WITHIN: Duration = Duration::from_secs(20);

/// How a scenario is run.
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
    /// By how much batches miss their profiles, instead of the scenario's.
    pub noise: Option<f64>,
    /// Whether times are judged. On a machine that others use as well, only safety can be judged.
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

/// Reasons for failures that a busy machine causes by itself: inputs are not at the backend in time, and a replica that
/// does not get to run is taken for dead, so that requests are handed over.
pub(crate) const OF_A_BUSY_MACHINE: [FailReason; 4] =
    [FailReason::PayloadLost, FailReason::NoAnswer, FailReason::NoGpu, FailReason::ControlPlaneLost];

impl Times {
    /// Whether a failure for this reason does not count, since a busy machine can cause it.
    pub(crate) fn excuse(self, reason: FailReason) -> bool {
        self == Self::Reported && OF_A_BUSY_MACHINE.contains(&reason)
    }
}

/// The highest rate of each model where times are not judged: finer gaps mean nothing there, and a development build
/// takes milliseconds of a core for a request. At 200 requests/s three models keep two cores busy, and requests fail
/// for that alone.
const UNJUDGED_RPS_MAX: f64 = 50.0;
/// The longest lag of the load generator where times are not judged.
const LAG_ANY_MS: f64 = 60_000.0;

/// Runs a scenario on a cluster of its own.
///
/// # Errors
/// If the harness fails: the cluster cannot be started, or evidence cannot be read.
pub async fn run(scenario: &Scenario, plan: &RunPlan) -> Result<Report> {
    let mut scenario = scenario.clone();
    plan.relax(&mut scenario.promise, &mut scenario.load);
    in_workspace(&scenario.name, plan, async |workspace| Box::pin(run_in(&scenario, plan, workspace)).await).await
}

impl RunPlan {
    /// Where times are not judged, none are promised, the load is light, and its generator may lag.
    pub(crate) fn relax(&self, promise: &mut Promise, load: &mut Load) {
        if self.times == Times::Reported {
            *promise = Promise { failed_max: promise.failed_max, ..Promise::default() };
            (load.lag_p99_ms, load.lag_max_ms) = (LAG_ANY_MS, LAG_ANY_MS);
            load.rate_rps = load.rate_rps.min(UNJUDGED_RPS_MAX);
        }
    }
}

/// Runs something in a folder of its own, which stays if the run did not pass.
pub(crate) async fn in_workspace(
    name: &str,
    plan: &RunPlan,
    ran: impl AsyncFnOnce(&Workspace) -> Result<Report>,
) -> Result<Report> {
    let binary = plan.binary.display();
    ensure!(plan.binary.exists(), "no program at {binary}; build it: cargo build --release -p symphony");
    let mut workspace = Workspace::new(name)?;
    let ran = ran(&workspace).await;
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
    let noise = plan.noise.unwrap_or(scenario.cluster.noise);
    let place = ClusterSetup { name: CLUSTER, binary: &plan.binary, dir, timing, links, noise, interpose };
    let mut cluster = Cluster::start(&scenario.cluster, place).await.context(NOT_STARTED)?;
    let network = cluster.network.kind();
    let specs = load::specs(&scenario.model, &cluster.processes.subclusters())?;
    let models = load_all(scenario, &specs, &mut cluster, plan.seed).await.context(NOT_STARTED)?;
    let loaded = models.len();

    let (began, clock) = (Instant::now(), MachineClock::read()?);
    let views = Views::watch(&cluster.replicas.all());
    let load = RunningLoad::start_on(&scenario.load, models, &cluster.frontends, plan.seed).await?;
    let recorder = recorder(began);
    let commits = Commits::start(cluster.writers.clone(), scenario.load.writes_rps);
    let model = specs.first().context("there is a sub-cluster")?;
    let admin = AdminClients::start(&cluster.replicas, model, scenario.load.admin_clients, plan.seed, &recorder);

    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed);
    let injector = Injector::new(Xoshiro256PlusPlus::seed_from_u64(random.random()), dir.to_owned());
    let observations = load.observations.clone();
    let followed = cluster.processes.replicas().collect();
    let mut scene = Scene {
        cluster,
        injector,
        random,
        views: &views,
        observations,
        models: loaded,
        followed,
        frontends_struck: Vec::new(),
    };
    let rounds = plan.repeat.unwrap_or(scenario.repeat);
    let (mut ran, mut run_failure) = (Vec::new(), None);
    for number in 1..=rounds {
        // Load, not synchronisation: this much undisturbed traffic stands before every round.
        let calm = CALM + Duration::from_millis(scene.random.random_range(0..CALM_RANDOM_MS));
        tokio::time::sleep(calm).await;
        match scene.round(scenario, number).await {
            Ok(round) => {
                eprintln!("{}: round {number} of {rounds}: {}", scenario.name, round.words());
                run_failure = round.run_failure.clone();
                ran.push(round);
                if run_failure.is_some() {
                    break;
                }
            }
            Err(error) => {
                // A process that ended by itself, a cluster that was not whole before anything happened, or chaos
                // itself.
                run_failure = Some(RunFailure::of(format_args!("round {number}"), &error));
                break;
            }
        }
    }
    tokio::time::sleep(CALM).await;

    let Scene { mut cluster, frontends_struck, .. } = scene;
    let written = commits.finish().await;
    admin.finish().await;
    let observations = load.observations.clone();
    let load = load.finish().await?;
    let observations = observations.all();
    let story = Story::judge(&recorder, &dir.join("admin-history"))?;
    let (ledger, ledger_by) = settle(&mut cluster, &load, &observations, &ran).await;
    let last_view = last_view(&cluster).await;
    let invariant_violations = violations(cluster.pages()).await;
    let journals: Vec<_> = cluster.journals.values().cloned().collect();
    if let Err(error) = cluster.stop_all().await {
        run_failure.get_or_insert_with(|| RunFailure::of("the end", &error));
    }
    let journals = journals.iter().map(|path| journal::read(path)).collect::<Result<Vec<_>>>()?;
    let executions = journal::judge(&journals);
    let writes_lost = last_view.as_ref().map(|view| lost(&written, view)).unwrap_or_default();
    let (findings, compared, fullest) = {
        let seen = views.seen();
        (seen.findings.clone(), seen.compared, seen.fullest_permille)
    };
    if last_view.is_none() {
        let why = anyhow!("no replica gives a linearizable view");
        run_failure.get_or_insert_with(|| RunFailure::of("the end", &why));
    }

    let acked: Vec<_> = (scenario.load.writes_rps > 0.0).then_some(&written.acked[..]).into_iter().collect();
    let conclusion = Conclusion {
        scenario: &scenario.name,
        shape: &scenario.round,
        promise: &scenario.promise,
        aim: &scenario.aim,
        seed: plan.seed,
        timing,
        noise,
        times: plan.times,
        network,
        rounds: &ran,
        frontends_struck: &frontends_struck,
        load: &load,
        observations: &observations,
        models: loaded,
        clock,
        ledger,
        ledger_by,
        executions: &executions,
        acked: &acked,
        writes_lost: &writes_lost,
        story: &story,
        idle: idle(&scenario.load, &written, &story),
        findings: &findings,
        views_compared: compared,
        fullest_permille: fullest,
        invariant_violations: &invariant_violations,
        run_failure: run_failure.as_ref(),
    };
    Ok(conclusion.report())
}

/// Has the cluster load the models, and the scenario's pipeline if it has one; what is sent to each, the pipeline last.
async fn load_all(
    scenario: &Scenario,
    specs: &[ModelSpec],
    cluster: &mut Cluster,
    seed: u64,
) -> Result<Vec<ModelLoad>> {
    for spec in specs {
        cluster.load(spec).await?;
    }
    let mut loads = load::model_loads(&scenario.load, specs, seed);
    if let Some(shape) = &scenario.pipeline {
        let Staged { models, declaration, inputs } =
            Staged::new(shape, &scenario.model, &cluster.processes.subclusters(), seed)?;
        for model in &models {
            cluster.load(model).await?;
        }
        cluster.load_pipeline(&declaration).await?;
        loads.push(load::load_of(&scenario.load, &declaration.name, declaration.slo(), inputs));
    }
    Ok(loads)
}

/// The counts when nothing is in flight any more: the frontends', or, where a frontend ended and its memory with
/// it, the client's.
async fn settle(
    cluster: &mut Cluster,
    load: &LoadReport,
    observations: &[Observation],
    rounds: &[RoundRun],
) -> (Ledger, &'static str) {
    let (lost, answered_twice) = (load.total.lost, load.total.answered_twice);
    let remembered = !rounds.iter().any(|round| round.ended.iter().any(|p| matches!(p, Process::Frontend(_))));
    if remembered && let Ok(ledger) = frontends_counts(&cluster.frontend_pages()).await {
        return (Ledger { lost, answered_twice, ..ledger }, "frontends");
    }
    let count = |fate| observations.iter().filter(|one| one.fate == fate).count() as u64;
    let ledger = Ledger {
        // What was never answered is in `lost`, and breaks the balance as it should.
        accepted: observations.len() as u64,
        in_time: count(Fate::InTime),
        late: count(Fate::Late),
        dropped: count(Fate::Dropped),
        failed: observations.iter().filter(|one| matches!(one.fate, Fate::Failed(_))).count() as u64,
        cancelled: 0,
        lost,
        answered_twice,
    };
    (ledger, "client")
}

/// The sum of what the frontends with these pages count, once nothing is in flight any more.
pub(crate) async fn frontends_counts(pages: &[Address]) -> Result<Ledger> {
    wait_until_async("the last outcome", GRACE, || async {
        let mut sum = Ledger::default();
        for frontend in pages {
            let ledger = &page(frontend).await?["ledger"];
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
pub(crate) fn idle(load: &Load, written: &Written, story: &Story) -> Vec<&'static str> {
    let writes = load.writes_rps > 0.0 && written.acked.is_empty();
    let admin = load.admin_clients > 0 && story.operations <= story.open;
    [("write", writes), ("call of the admin API", admin)]
        .into_iter()
        .filter(|(_, idle)| *idle)
        .map(|(work, _)| work)
        .collect()
}

/// The cluster's view at the end; none if it does not answer.
pub(crate) async fn last_view(cluster: &Cluster) -> Option<View> {
    cluster.control.get(true, LAST_VIEW_WITHIN).await.ok()
}

/// Violations of named invariants that the living processes with these pages counted: who, and how many.
pub(crate) async fn violations(pages: impl Iterator<Item = Address>) -> Vec<(String, u64)> {
    let mut counted = Vec::new();
    for address in pages {
        // A process that cannot say has been found out elsewhere.
        if let Ok(page) = page(&address).await {
            let count = page["invariant_violations"].as_u64().unwrap_or(0);
            if count > 0 {
                let word = |key: &str| page[key].as_str().unwrap_or("?").to_owned();
                counted.push((format!("{} {}", word("role"), word("name")), count));
            }
        }
    }
    counted
}
