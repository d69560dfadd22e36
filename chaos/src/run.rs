//! One run: a cluster, load, kills, and what became of the requests.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony::load::{
    ArrivalKind, EmulatedInputs, GrpcTarget, LagLimits, LoadPlan, ModelLoad, Report as LoadReport, run as run_load,
};
use symphony_config::Timing;
use symphony_executor::default_signature;
use symphony_protocol::view::{KindProfile, ModelSource, ModelSpec, SubclusterView, View};
use symphony_testkit::{Workspace, wait_until_async};
use symphony_types::{LatencyProfile, Nanos, NodeId, RequestValue};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::checker::{Evidence, judge};
use crate::cluster::{Cluster, GPU_KIND, SUBCLUSTER, whole};
use crate::report::{Fault, FaultState, Ledger, Report, Summary, Takeover};
use crate::scenario::{Scenario, Victim};

/// The model's name.
const MODEL: &str = "victim";
/// The fault's name in reports.
const KILL: &str = "kill -9";
/// How long the cluster may take to name another leader.
const NAMED_WITHIN: Duration = Duration::from_secs(10);
/// What is looked at around a kill: so long before it, for comparison, and after it. Longer than any gap promised.
const WINDOW: Duration = Duration::from_millis(1500);
/// Load before the first kill, and the shortest quiet time between a victim's return and the next kill.
const CALM: Duration = Duration::from_millis(2000);
/// A random part of the calm, so that kills do not keep step with heartbeats and elections.
const CALM_RANDOM_MS: u64 = 1000;
/// The longest one kill and its recovery may take; bounds the load's schedule.
const ROUND_MAX: Duration = Duration::from_secs(90);
/// How long answers are waited for at the end.
const GRACE: Duration = Duration::from_secs(5);

/// When something happened, on the clock of the load.
struct Struck {
    killed_at: Duration,
    takeover: Takeover,
}

/// Runs a scenario `repeat` times over on one cluster.
///
/// # Errors
/// If the cluster cannot be started or does not come back: a failure of the harness, or worse.
pub(crate) async fn run(scenario: &Scenario, binary: &Path, timing: Timing, repeat: u32, seed: u64) -> Result<Report> {
    ensure!(binary.exists(), "no program at {}; build it: cargo build -p symphony", binary.display());
    let mut workspace = Workspace::new(&scenario.name)?;
    let ran = run_in(scenario, binary, timing, (repeat, seed), workspace.path()).await;
    if ran.is_err() {
        workspace.keep();
        eprintln!("logs are kept in {}", workspace.path().display());
    }
    ran
}

async fn run_in(
    scenario: &Scenario,
    binary: &Path,
    timing: Timing,
    (repeat, seed): (u32, u64),
    dir: &Path,
) -> Result<Report> {
    let mut cluster = Cluster::start(binary, scenario.cluster, timing, dir).await?;
    let spec = model_spec(scenario)?;
    cluster.load(&spec).await?;

    let target = GrpcTarget::connect(&cluster.frontend.grpc.to_string(), scenario.load.connections).await?;
    let stop = CancellationToken::new();
    let plan = load_plan(scenario, &spec, repeat, seed);
    let began = Instant::now();
    let load = tokio::spawn(run_load(plan, Arc::new(target), stop.clone()));
    let struck = strike(scenario, &mut cluster, repeat, seed, began).await;
    stop.cancel();
    let load = load.await??;
    let (faults, struck) = struck?;
    let (ledger, violations) = settle(&cluster, &load).await?;
    cluster.stop()?;
    Ok(report(scenario, timing, seed, faults, struck, &load, ledger, violations))
}

/// Kills, watches, restarts, `repeat` times.
async fn strike(
    scenario: &Scenario,
    cluster: &mut Cluster,
    repeat: u32,
    seed: u64,
    began: Instant,
) -> Result<(Vec<Fault>, Vec<Struck>)> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut faults, mut struck) = (Vec::new(), Vec::new());
    for number in 1..=repeat {
        // Load, not synchronisation: this much undisturbed traffic stands before every kill.
        let calm = CALM + Duration::from_millis(random.random_range(0..CALM_RANDOM_MS));
        tokio::time::sleep(calm).await;
        let before = cluster.control.get(true, NAMED_WITHIN).await?;
        let victim = match scenario.victim {
            Victim::SubclusterLeader => subcluster(&before).and_then(|s| s.leader).map(|(node, _)| node),
            Victim::RaftLeader => before.control_leader,
        };
        let Some(victim) = victim else {
            faults.push(Fault { kind: KILL, state: FaultState::Skipped });
            continue;
        };
        let (state, round) = kill_and_recover(cluster, &before, victim, began).await?;
        let takeover = &round.takeover;
        eprintln!(
            "kill {number} of {repeat}: {victim}{}{}; another leader after {} ms; standby again {:.0} ms after its restart",
            if takeover.victim_led_subcluster { ", sub-cluster leader" } else { "" },
            if takeover.victim_led_control_group { ", Raft leader" } else { "" },
            takeover.named_after_ms.map_or_else(|| "-".into(), |ms| format!("{ms:.0}")),
            takeover.standby_after_ms,
        );
        faults.push(Fault { kind: KILL, state });
        struck.push(round);
    }
    Ok((faults, struck))
}

async fn kill_and_recover(
    cluster: &mut Cluster,
    before: &View,
    victim: NodeId,
    began: Instant,
) -> Result<(FaultState, Struck)> {
    let old = subcluster(before).context("the sub-cluster has gone")?.clone();
    let led = old.leader.is_some_and(|(node, _)| node == victim);
    let mut views = cluster.control.watch("chaos");
    let seen = views.wait_for(|view| view.applied_index >= before.applied_index).await?;
    // Whether the victim still was who it was when it was chosen.
    let same = subcluster(&seen).is_some_and(|now| now.token == old.token);
    drop(seen);
    let killed = Instant::now();
    let killed_at = killed - began;
    cluster.kill(victim)?;
    let named_after_ms = if led {
        let named = views.wait_for(|view| subcluster(view).is_some_and(|s| s.token > old.token && s.leader.is_some()));
        let named = tokio::time::timeout(NAMED_WITHIN, named).await;
        named.with_context(|| format!("no other leader within {} s", NAMED_WITHIN.as_secs()))??;
        Some(millis(killed.elapsed()))
    } else {
        None
    };
    // The restart takes a core for itself on small machines; it stays out of the time that is looked at.
    tokio::time::sleep_until(killed + WINDOW).await;
    let restarted = Instant::now();
    cluster.restart(victim)?;
    let old_boot = before.nodes.get(&victim).and_then(|node| node.boot);
    let back = |view: &View| match view.nodes.get(&victim) {
        Some(node) if node.boot != old_boot => whole(view),
        _ => Err(format!("{victim} has not registered again")),
    };
    cluster.until(&format!("the return of {victim}"), back).await?;
    let takeover = Takeover {
        victim: victim.get(),
        victim_led_subcluster: led,
        victim_led_control_group: before.control_leader == Some(victim),
        named_after_ms,
        dispatch_gap_ms: None,
        gap_before_ms: None,
        standby_after_ms: millis(restarted.elapsed()),
    };
    let state = if same { FaultState::Installed } else { FaultState::Indeterminate };
    Ok((state, Struck { killed_at, takeover }))
}

fn subcluster(view: &View) -> Option<&SubclusterView> {
    view.subclusters.values().find(|s| s.name == SUBCLUSTER)
}

fn model_spec(scenario: &Scenario) -> Result<ModelSpec> {
    let model = &scenario.model;
    let latency = LatencyProfile::from_line(model.alpha_ms, model.beta_ms, model.batch_max)?;
    let profile = KindProfile { latency, static_memory_bytes: 0, dynamic_memory_bytes: 0 };
    Ok(ModelSpec {
        name: MODEL.into(),
        subcluster: SUBCLUSTER.into(),
        slo: Nanos::from_millis_f64(model.slo_ms),
        source: ModelSource::Emulated,
        signature: default_signature(),
        profiles: [(GPU_KIND.to_owned(), profile)].into(),
        policy: model.policy.clone(),
        value: RequestValue::ONE,
    })
}

fn load_plan(scenario: &Scenario, spec: &ModelSpec, repeat: u32, seed: u64) -> LoadPlan {
    let lag = |ms: f64| Duration::from_secs_f64(ms / 1e3);
    LoadPlan {
        seed,
        warmup: Duration::ZERO,
        // An upper bound; the run stops it when the last victim has returned.
        duration: ROUND_MAX * repeat.max(1),
        grace: GRACE,
        lag: LagLimits { p99: lag(scenario.load.lag_p99_ms), max: lag(scenario.load.lag_max_ms) },
        models: vec![ModelLoad {
            model: MODEL.into(),
            rate_rps: scenario.load.rate_rps,
            arrival: ArrivalKind::Poisson,
            slo: spec.slo.into(),
            // The deadline counts from the frontend's first byte; an answer that it calls timely is good.
            slack: lag(scenario.load.lag_p99_ms),
            timeout: None,
            inputs: Arc::new(EmulatedInputs::new(&spec.signature, 1, seed)),
        }],
    }
}

/// The frontend's counts when nothing is in flight any more, and violations that the living processes counted.
async fn settle(cluster: &Cluster, load: &LoadReport) -> Result<(Ledger, u64)> {
    let pages = wait_until_async("the last outcome", GRACE, || async {
        let pages = cluster.pages().await?;
        let frontend = pages.last().context("the frontend has a page")?;
        ensure!(frontend["ledger"]["in_flight"] == 0, "{} in flight", frontend["ledger"]["in_flight"]);
        Ok(pages)
    })
    .await?;
    let count = |page: &serde_json::Value, key: &str| page[key].as_u64().with_context(|| format!("no `{key}`"));
    let violations = pages.iter().map(|page| count(page, "invariant_violations")).sum::<Result<_>>()?;
    let counts = &pages.last().context("the frontend has a page")?["ledger"]["counts"];
    let ledger = Ledger {
        accepted: count(counts, "accepted")?,
        in_time: count(counts, "in_time")?,
        late: count(counts, "late")?,
        dropped: count(counts, "dropped")?,
        failed: count(counts, "failed")?,
        cancelled: count(counts, "cancelled")?,
        lost: load.total.lost,
        answered_twice: load.total.answered_twice,
    };
    Ok((ledger, violations))
}

#[allow(clippy::too_many_arguments)] // Everything that was seen, once.
fn report(
    scenario: &Scenario,
    timing: Timing,
    seed: u64,
    faults: Vec<Fault>,
    struck: Vec<Struck>,
    load: &LoadReport,
    ledger: Ledger,
    invariant_violations: u64,
) -> Report {
    let gap = |from: Duration, to: Duration| {
        let gap = load.tallies.first().and_then(|tally| tally.longest_gap(from, to));
        gap.map(|gap| millis(gap.length))
    };
    let takeovers: Vec<_> = struck
        .into_iter()
        .map(|Struck { killed_at, takeover }| Takeover {
            dispatch_gap_ms: gap(killed_at, killed_at + WINDOW),
            gap_before_ms: gap(killed_at.saturating_sub(WINDOW), killed_at),
            ..takeover
        })
        .collect();
    let evidence = Evidence {
        faults: &faults,
        takeovers: &takeovers,
        ledger,
        foreign: load.total.foreign,
        invariant_violations,
        load_failure: (!load.verdict.passed()).then(|| load.verdict.to_string()),
    };
    let (outcome, reasons) = judge(&evidence, scenario.promise);
    Report {
        scenario: scenario.name.clone(),
        outcome,
        reasons,
        seed,
        timing,
        dispatch_gap_ms: Summary::of(takeovers.iter().filter_map(|t| t.dispatch_gap_ms)),
        gap_before_ms: Summary::of(takeovers.iter().filter_map(|t| t.gap_before_ms)),
        named_after_ms: Summary::of(takeovers.iter().filter_map(|t| t.named_after_ms)),
        commit_gap_ms: None,
        ledger,
        stale_tokens_accepted: None,
        overlapping_batches: None,
        invariant_violations,
        faults,
        takeovers,
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
