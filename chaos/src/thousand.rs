//! A cluster of very many small sub-clusters: what it costs at rest, and how long it takes until all of them serve
//! again when the replica that leads them dies.

mod player;
mod thousand_report;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use prost::Message as _;
use symphony_config::Timing;
use symphony_protocol::control as pb;
use symphony_protocol::journal::Record;
use symphony_protocol::view::{ModelSpec, View};
use symphony_testkit::{Child, ChildSpec, Workspace};
use symphony_transport::{ControlClient, fresh_operation_id};
use symphony_types::{Duty, Member, NodeId, SubclusterId, Token};
use tokio::task::JoinSet;

use crate::cluster::{CERTIFICATE_DAYS, CLUSTER, Cluster, ClusterSetup, PKI, Process};
use crate::journal;
use crate::load::{self, RunningLoad};
use crate::report::{Ledger, Outcome, Summary};
use crate::run::frontends_counts;
use crate::run::machine_clock::MachineClock;
use crate::scenario::{ClusterShape, Links, Load, Model};

use player::PlayPlan;
pub use player::play;
pub use thousand_report::{ProcessUsage, ThousandReport};
use usage::Usage;

/// How long anything may take that is waited for.
const WITHIN: Duration = Duration::from_secs(300);
/// How long one look or call may take: a view of all is large.
const CALL_WITHIN: Duration = Duration::from_secs(20);
/// The pause between looks at a view of all.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// Models that are loaded at a time.
const LOADS_AT_ONCE: usize = 64;
/// The consequences of a change have ended after this.
const SETTLED_AFTER: Duration = Duration::from_secs(5);
/// Undisturbed load before the kill. With what comes before it less than the calm that the cluster waits for before it
/// would spread what one replica leads over all.
const CALM: Duration = Duration::from_secs(1);
/// Load goes on for so long after everything serves again.
const AFTERWARDS: Duration = Duration::from_secs(1);
/// The load of a model: enough to see it serve.
const RATE_RPS: f64 = 5.0;
/// The load generator is no part of what is measured.
const LAG_ANY_MS: f64 = 60_000.0;
/// What is sent to watchers.
const VIEW_BYTES: &str = "symphony_control_view_bytes_total";

/// Who leads the sub-clusters before the kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedBy {
    /// One replica that does not lead the control group leads all: the others are cordoned while the backends come.
    One,
    /// The leaders that the cluster chooses.
    Placement,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct ThousandPlan {
    /// The `symphony` program.
    pub binary: PathBuf,
    /// The `symphony-chaos` program, which plays the backends.
    pub player: PathBuf,
    /// Sub-clusters, each with a backend of one emulated GPU and a model.
    pub subclusters: u32,
    /// Of them, those with load.
    pub loaded: u32,
    /// How long the idle usage of all processes is measured.
    pub idle: Duration,
    /// Who leads before the kill.
    pub led_by: LedBy,
    /// How patient the cluster is.
    pub timing: Timing,
    /// Inputs and arrivals come from it.
    pub seed: u64,
    /// Keeps logs and journals whatever the outcome.
    pub keep: bool,
}

fn name_of(number: u32) -> String {
    format!("backend-{number}")
}

fn subcluster_of(number: u32) -> String {
    format!("pool-{number}")
}

fn journal_of(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{}.journal", name_of(number)))
}

/// Runs it on a cluster of its own.
///
/// # Errors
/// If the harness fails: the cluster cannot be started, or evidence cannot be read.
pub async fn run_thousand(plan: &ThousandPlan) -> Result<ThousandReport> {
    for program in [&plan.binary, &plan.player] {
        ensure!(program.exists(), "no program at {}; build it first", program.display());
    }
    ensure!(
        (1..=plan.subclusters).contains(&plan.loaded),
        "load on {} of {} sub-clusters",
        plan.loaded,
        plan.subclusters
    );
    let mut workspace = Workspace::new("thousand")?;
    let ran = run_in(plan, workspace.path()).await;
    if plan.keep || !matches!(&ran, Ok(report) if report.outcome == Outcome::Pass) {
        workspace.keep();
        eprintln!("configurations, logs and journals are in {}", workspace.path().display());
    }
    ran
}

async fn run_in(plan: &ThousandPlan, dir: &Path) -> Result<ThousandReport> {
    let shape = ClusterShape { subclusters: 0, backends: 0, gpus: 1, ..ClusterShape::default() };
    let (timing, links) = (plan.timing, Links::Direct);
    let place = ClusterSetup { name: CLUSTER, binary: &plan.binary, dir, timing, links, noise: 0.0, interpose: false };
    let cluster = Cluster::start(&shape, place).await?;
    let mut scene = Scene { plan, dir, cluster, player: None };

    let view = scene.view().await?;
    let leader = view.control_leader.context("the control group has a leader")?;
    let all: Vec<_> = view.nodes.keys().copied().collect();
    let chosen = all.iter().copied().find(|node| *node != leader).context("there are several replicas")?;
    let all_but = |one: NodeId| all.iter().copied().filter(|node| *node != one).collect::<Vec<_>>();
    if plan.led_by == LedBy::One {
        scene.set_duty(&all_but(chosen), Duty::Cordoned).await?;
    }

    let begun = Instant::now();
    scene.start_player()?;
    let up = |view: &View| view.backends.values().filter(|backend| backend.up).count();
    scene.until("backends are registered", up).await?;
    let registered_after = begun.elapsed();
    eprintln!("{} backends are registered after {registered_after:?}", plan.subclusters);

    let names: Vec<_> = (1..=plan.subclusters).map(subcluster_of).collect();
    let specs = load::specs(&Model::default(), &names)?;
    let begun = Instant::now();
    scene.load_all(&specs).await?;
    let view =
        scene.until("models are ready", |view| view.models.values().filter(|m| m.is_ready(view)).count()).await?;
    let models_ready_after = begun.elapsed();
    let whole_view_bytes = pb::ClusterView::from(&view).encoded_len();
    eprintln!("their models are ready after {models_ready_after:?}");

    tokio::time::sleep(SETTLED_AFTER).await;
    let view_bytes_until_ready = scene.view_bytes().await?;
    let idle = scene.idle(&view).await?;

    let load = Load { rate_rps: RATE_RPS, lag_p99_ms: LAG_ANY_MS, lag_max_ms: LAG_ANY_MS, ..Load::default() };
    let loaded = &specs[..plan.loaded as usize];
    let running = RunningLoad::start(&load, loaded, &scene.cluster.frontends, plan.seed).await?;
    let models: Vec<_> = (0..loaded.len()).collect();
    until_all_answer(&running, &models, Instant::now()).await?;
    if plan.led_by == LedBy::One {
        scene.set_duty(&all_but(chosen), Duty::Serving).await?;
    }
    let mut news = scene.cluster.control.watch("thousand");
    tokio::time::sleep(CALM).await;

    let clock = MachineClock::read()?;
    let before = scene.view().await?;
    let victim = victim(&before).context("a replica beside the control group's leader leads something")?;
    let others = all_but(victim);
    let struck: BTreeMap<SubclusterId, Token> = before
        .subclusters
        .iter()
        .filter(|(_, s)| s.leader.is_some_and(|(node, _)| node == victim))
        .map(|(&id, s)| (id, s.token))
        .collect();
    let struck_names: BTreeSet<_> = struck.keys().map(|id| before.subclusters[id].name.clone()).collect();
    let all_led = struck.len() == plan.subclusters as usize;
    let wanted = all_led || plan.led_by == LedBy::Placement;
    ensure!(wanted, "{victim} leads {} of {} sub-clusters", struck.len(), plan.subclusters);
    let sent_before = scene.view_bytes_of(&others).await?;
    let killed = Instant::now();
    scene.cluster.kill(Process::Replica(victim.get()))?;

    let renamed = |view: &View| {
        struck
            .iter()
            .all(|(id, &token)| view.subclusters.get(id).is_some_and(|s| s.leader.is_some() && s.token > token))
    };
    let named = tokio::time::timeout(WITHIN, news.wait_for(|view| renamed(view))).await;
    let after = named.context("nobody leads what the victim led")??.clone();
    let named_after = killed.elapsed();
    let asked: Vec<_> = (0..loaded.len()).filter(|&model| struck_names.contains(&loaded[model].subcluster)).collect();
    let answered = until_all_answer(&running, &asked, killed).await?;
    let killed_ns = clock.ns(killed);
    let sealed = scene.sealed(&struck_names, &after, killed_ns).await?;
    tokio::time::sleep(AFTERWARDS).await;
    let view_bytes_in_takeover = scene.view_bytes_of(&others).await? - sent_before;

    let generator = running.finish().await?;
    let counted = frontends_counts(&scene.cluster.frontend_pages()).await?;
    let ledger = Ledger { lost: generator.total.lost, answered_twice: generator.total.answered_twice, ..counted };
    let executions = journal::judge(&scene.journals()?);
    scene.cluster.check()?;
    let tokens: BTreeSet<_> = struck.keys().map(|id| after.subclusters[id].token).collect();
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let mut report = ThousandReport {
        scenario: "thousand",
        outcome: Outcome::Pass,
        findings: executions.findings,
        subclusters: plan.subclusters,
        loaded: plan.loaded,
        registered_after_ms: ms(registered_after),
        models_ready_after_ms: ms(models_ready_after),
        idle,
        idle_secs: plan.idle.as_secs_f64(),
        whole_view_bytes,
        view_bytes_until_ready,
        view_bytes_in_takeover,
        led_by_victim: struck.len(),
        named_after_ms: ms(named_after),
        sealed_after_ms: Summary::of(sealed.into_iter().map(|ns| (ns - killed_ns) as f64 / 1e6)),
        serving_after_ms: Summary::of(answered.into_iter().map(|at| ms(at - killed))),
        log_entries: tokens.len(),
        ledger,
        stale_tokens_accepted: executions.stale,
        overlapping_batches: executions.overlapping,
    };
    report.judge(executions.missing);
    Ok(report)
}

impl ThousandReport {
    /// Finds what was promised and not kept. Times are reported, not judged: they are the machine's as well.
    fn judge(&mut self, records_missing: u64) {
        let Ledger { lost, answered_twice, .. } = self.ledger;
        let mut find = |broken: bool, words: String| {
            if broken {
                self.findings.push(words);
            }
        };
        find(self.log_entries != 1, format!("{} log entries gave to others what one replica led", self.log_entries));
        find(lost + answered_twice > 0, format!("{lost} requests lost, {answered_twice} answered twice"));
        find(self.stale_tokens_accepted > 0, format!("{} stale tokens accepted", self.stale_tokens_accepted));
        find(self.overlapping_batches > 0, format!("{} overlapping batches", self.overlapping_batches));
        if !self.findings.is_empty() {
            self.outcome = Outcome::Violation;
        } else if records_missing > 0 {
            self.outcome = Outcome::Harness;
            self.findings.push(format!(
                "{records_missing} records are missing from the journals: give their disk room, and the run a core"
            ));
        }
    }
}

/// Who leads most of those that do not lead the control group, and leads at all.
fn victim(view: &View) -> Option<NodeId> {
    let mut led = BTreeMap::<NodeId, usize>::new();
    for (leader, _) in view.subclusters.values().filter_map(|s| s.leader) {
        *led.entry(leader).or_default() += 1;
    }
    let others = led.into_iter().filter(|(node, _)| view.control_leader != Some(*node));
    others.max_by_key(|(_, led)| *led).map(|(node, _)| node)
}

/// When each of these models first answered in time what was sent since then.
async fn until_all_answer(load: &RunningLoad, models: &[usize], since: Instant) -> Result<Vec<Instant>> {
    let give_up = Instant::now() + WITHIN;
    loop {
        let answers: Option<Vec<_>> = models.iter().map(|&model| load.observations.first_good(model, since)).collect();
        if let Some(answers) = answers {
            return Ok(answers);
        }
        ensure!(Instant::now() < give_up, "not all models with load answer in time within {WITHIN:?}");
        tokio::time::sleep(POLL_EVERY).await;
    }
}

struct Scene<'a> {
    plan: &'a ThousandPlan,
    dir: &'a Path,
    cluster: Cluster,
    player: Option<Child>,
}

impl Scene<'_> {
    async fn view(&self) -> Result<View> {
        Ok(self.cluster.control.get(true, CALL_WITHIN).await?)
    }

    /// Waits until as many are counted as there are sub-clusters.
    async fn until(&mut self, what: &str, count: impl Fn(&View) -> usize) -> Result<View> {
        let give_up = Instant::now() + WITHIN;
        let wanted = self.plan.subclusters as usize;
        loop {
            let view = self.view().await?;
            let counted = count(&view);
            if counted == wanted {
                return Ok(view);
            }
            self.cluster.check()?;
            if let Some(status) = self.player()?.ended()? {
                bail!("the backends' process has ended ({status}); its log ends:\n{}", self.player()?.log_tail());
            }
            ensure!(Instant::now() < give_up, "{counted} of {wanted} {what} after {WITHIN:?}");
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    async fn set_duty(&self, nodes: &[NodeId], duty: Duty) -> Result<()> {
        for node in nodes {
            let request = pb::SetDutyRequest {
                member: Some(Member::Scheduler(*node).into()),
                duty: pb::Duty::from(duty).into(),
                operation_id: fresh_operation_id().to_string(),
            };
            let call = |mut client: pb::control_client::ControlClient<_>| {
                let request = request.clone();
                async move { client.set_duty(request).await }
            };
            self.cluster.control.call(CALL_WITHIN, call).await?;
        }
        Ok(())
    }

    fn start_player(&mut self) -> Result<()> {
        let plan = PlayPlan {
            cluster: CLUSTER.to_owned(),
            pki: self.dir.join(PKI),
            controls: self.cluster.control_addrs(),
            backend: self.cluster.backend.clone(),
            dir: self.dir.to_owned(),
            count: self.plan.subclusters,
        };
        let file = self.dir.join("backends.json");
        std::fs::write(&file, serde_json::to_vec_pretty(&plan)?)?;
        let args = ["play".to_owned(), file.to_string_lossy().into_owned()];
        self.player = Some(ChildSpec::new("backends", &self.plan.player, args, self.dir).spawn()?);
        Ok(())
    }

    fn player(&mut self) -> Result<&mut Child> {
        self.player.as_mut().context("the backends' process was started")
    }

    /// Loads all models, some at a time, each at the replicas in turn.
    async fn load_all(&self, specs: &[ModelSpec]) -> Result<()> {
        let mut loading = JoinSet::new();
        for spec in specs {
            if loading.len() >= LOADS_AT_ONCE
                && let Some(loaded) = loading.join_next().await
            {
                loaded??;
            }
            loading.spawn(load_one(self.cluster.control.clone(), spec.clone()));
        }
        while let Some(loaded) = loading.join_next().await {
            loaded??;
        }
        Ok(())
    }

    /// The idle usage of all processes.
    async fn idle(&mut self, view: &View) -> Result<Vec<ProcessUsage>> {
        let mut pids = Vec::new();
        for replica in self.cluster.processes.replicas() {
            let Process::Replica(id) = replica else { continue };
            let leads =
                |s: &&symphony_protocol::view::SubclusterView| s.leader.is_some_and(|(node, _)| node.get() == id);
            let leads = view.subclusters.values().filter(leads).count();
            pids.push((replica.to_string(), leads, self.cluster.pid(replica)?));
        }
        for frontend in self.cluster.processes.frontends() {
            pids.push((frontend.to_string(), 0, self.cluster.pid(frontend)?));
        }
        pids.push(("all backends".to_owned(), 0, self.player()?.id()));
        let before = pids.iter().map(|(_, _, pid)| Usage::of(*pid)).collect::<Result<Vec<_>>>()?;
        tokio::time::sleep(self.plan.idle).await;
        let used = pids.into_iter().zip(&before).map(|((process, leads, pid), before)| {
            let now = Usage::of(pid)?;
            let cpu_percent = now.cpu_percent_since(before);
            Ok(ProcessUsage { process, leads, cpu_percent, rss_mib: now.rss_mib })
        });
        used.collect()
    }

    /// Bytes of views that all replicas have sent.
    async fn view_bytes(&self) -> Result<f64> {
        let all: Vec<_> = self.cluster.processes.replicas().collect();
        self.view_bytes_by(&all).await
    }

    async fn view_bytes_of(&self, nodes: &[NodeId]) -> Result<f64> {
        let replicas: Vec<_> = nodes.iter().map(|node| Process::Replica(node.get())).collect();
        self.view_bytes_by(&replicas).await
    }

    async fn view_bytes_by(&self, replicas: &[Process]) -> Result<f64> {
        let mut sum = 0.0;
        for replica in replicas {
            sum += self.cluster.metric(*replica, VIEW_BYTES).await?;
        }
        Ok(sum)
    }

    /// When the GPU of each of these sub-clusters first promised the token that `view` gives it, by the machine's
    /// clock.
    async fn sealed(&self, subclusters: &BTreeSet<String>, view: &View, killed_ns: u64) -> Result<Vec<u64>> {
        let give_up = Instant::now() + WITHIN;
        loop {
            let mut times = Vec::new();
            for number in (1..=self.plan.subclusters).filter(|&number| subclusters.contains(&subcluster_of(number))) {
                let (records, _) = journal::read(&journal_of(self.dir, number))?;
                let token = view.subclusters.values().find(|s| s.name == subcluster_of(number)).map(|s| s.token.get());
                times.extend(first_seal(&records, token.unwrap_or(u64::MAX), killed_ns));
            }
            if times.len() == subclusters.len() {
                return Ok(times);
            }
            ensure!(Instant::now() < give_up, "{} of {} GPUs are sealed", times.len(), subclusters.len());
            tokio::time::sleep(SETTLED_AFTER).await;
        }
    }

    fn journals(&self) -> Result<Vec<(Vec<Record>, u64)>> {
        (1..=self.plan.subclusters).map(|number| journal::read(&journal_of(self.dir, number))).collect()
    }
}

/// When a token, or a larger one, was first promised after a moment.
fn first_seal(records: &[Record], wanted: u64, since_ns: u64) -> Option<u64> {
    records.iter().find_map(|record| match record {
        Record::Sealed { at_ns, promised, .. } if *promised >= wanted && *at_ns >= since_ns => Some(*at_ns),
        _ => None,
    })
}

async fn load_one(control: ControlClient, spec: ModelSpec) -> Result<()> {
    let operation_id = fresh_operation_id().to_string();
    let request = pb::LoadModelRequest { spec: Some((&spec).into()), operation_id };
    let call = |mut client: pb::control_client::ControlClient<_>| {
        let request = request.clone();
        async move { client.load_model(request).await }
    };
    control.call(CALL_WITHIN, call).await.with_context(|| format!("cannot load {}", spec.name))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::SubclusterView;
    use symphony_types::BootId;

    use super::*;

    fn seal(at_ns: u64, promised: u64) -> Record {
        Record::Sealed { at_ns, gpu: 1, node: 2, token: promised, promised }
    }

    #[test]
    fn the_first_seal_under_a_token_is_found_and_no_other() {
        let records = [seal(5, 1), seal(7, 3), seal(9, 3), seal(11, 4)];
        assert_eq!(first_seal(&records, 3, 6), Some(7));
        assert_eq!(first_seal(&records, 3, 8), Some(9), "after the moment");
        assert_eq!(first_seal(&records, 4, 0), Some(11));
        assert_eq!(first_seal(&records, 5, 0), None);
    }

    #[test]
    fn whoever_leads_most_beside_the_control_leader_is_struck() {
        let led = |by: u64| SubclusterView { leader: Some((NodeId::new(by), BootId::new(1))), ..Default::default() };
        let subclusters = (1..).map(SubclusterId::new).zip([1, 1, 1, 2, 3, 3].map(led)).collect();
        let view = View { control_leader: Some(NodeId::new(1)), subclusters, ..View::default() };
        assert_eq!(victim(&view), Some(NodeId::new(3)));
        assert_eq!(victim(&View { control_leader: None, ..view }), Some(NodeId::new(1)));
        assert_eq!(victim(&View::default()), None);
    }

    /// Each planted breach is found, and nothing else is.
    #[test]
    fn what_breaks_a_promise_is_no_pass() {
        let clean = || ThousandReport { log_entries: 1, ..ThousandReport::default() };
        let judged = |mut report: ThousandReport, missing| {
            report.judge(missing);
            (report.outcome, report.findings.len())
        };
        assert_eq!(judged(clean(), 0), (Outcome::Pass, 0));
        assert_eq!(judged(clean(), 3), (Outcome::Harness, 1));
        for broken in [
            ThousandReport { log_entries: 2, ..clean() },
            ThousandReport { ledger: Ledger { lost: 1, ..Ledger::default() }, ..clean() },
            ThousandReport { ledger: Ledger { answered_twice: 1, ..Ledger::default() }, ..clean() },
            ThousandReport { stale_tokens_accepted: 1, ..clean() },
            ThousandReport { overlapping_batches: 1, ..clean() },
        ] {
            assert_eq!(judged(broken, 1), (Outcome::Violation, 1));
        }
    }
}
