//! Requests for a pipeline of two stages in two sub-clusters: the production run and its check, hosted as frontends do
//! it. What its stages are asked are requests like any other, through take-overs, and the end takes back what is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_pipeline::{
    Action, AskId, EdgeSpec, Event, Lost, Pipeline, PipelineRun, PipelineSpec, Refused, RunCheck, RunPlan, Stage,
    Violation,
};
use symphony_types::{BootId, DropReason, Invariant, LatencyProfile, Nanos, Outcome, RequestValue, Time};
use tokio::time::Instant;

use super::DEADLINE;
use super::request_table::{Part, RequestTable};
use crate::cluster::Cluster;
use crate::plant::Plant;

/// What each stage has of the deadline, and what is left over.
const BUDGET: Nanos = Nanos::from_millis(900);
/// Rows of a result that lead on; there may be none.
const ROWS_MAX: u32 = 3;
/// One of this many pauses between requests brings a request for the pipeline.
const BEGUN_EVERY: u32 = 2;
/// In one of this many of these pauses a client goes.
const CANCELLED_EVERY: u32 = 8;

/// A request that has no outcome.
struct Hosted {
    run: PipelineRun,
    check: RunCheck,
    began: Instant,
    in_peace: bool,
    /// The numbers of its stage requests.
    open: BTreeMap<AskId, u64>,
}

/// All of a frontend.
pub(super) struct Pipelines {
    cluster: Cluster,
    plan: Arc<RunPlan>,
    random: Xoshiro256PlusPlus,
    runs: BTreeMap<u64, Hosted>,
    begun: u64,
}

impl Pipelines {
    /// # Errors
    /// If the pipeline is not one.
    pub(super) fn new(cluster: Cluster, boot: BootId) -> Result<Self, Box<dyn std::error::Error>> {
        // Other numbers than those by which the frontend asks.
        let random = Xoshiro256PlusPlus::seed_from_u64(boot.get().wrapping_add(1 << 32));
        Ok(Self { cluster, plan: Arc::new(plan()?), random, runs: BTreeMap::new(), begun: 0 })
    }

    /// A pause between requests is over: perhaps a client goes, perhaps another one comes.
    pub(super) fn tick(&mut self, table: &RequestTable) {
        if !*self.cluster.pipelines.borrow() {
            return;
        }
        if self.random.random_range(0..CANCELLED_EVERY) == 0
            && let Some(&oldest) = self.runs.keys().next()
        {
            self.step(oldest, Event::Cancel, table);
        }
        if self.random.random_range(0..BEGUN_EVERY) == 0 {
            self.begin(table);
        }
    }

    fn begin(&mut self, table: &RequestTable) {
        let (plan, deadline) = (Arc::clone(&self.plan), Time::ZERO + Nanos::from(DEADLINE));
        let (mut check, mut actions) = (RunCheck::new(Arc::clone(&plan), deadline), Vec::new());
        let run = PipelineRun::begin(plan, Time::ZERO, deadline, &mut actions);
        report_violation(check.began(&actions));
        self.begun += 1;
        let in_peace = *self.cluster.peace.borrow();
        self.cluster.ledger.borrow_mut().submitted += 1;
        let hosted = Hosted { run, check, began: Instant::now(), in_peace, open: BTreeMap::new() };
        self.runs.insert(self.begun, hosted);
        self.act(self.begun, &actions, table);
    }

    /// A stage request has its result, with a random number of rows.
    pub(super) fn answered(&mut self, Part { run, ask }: Part, table: &RequestTable) {
        // The first one is the source's, whose result has an edge out of it.
        let rows = if ask.get() == 0 { vec![self.random.random_range(0..=ROWS_MAX)] } else { Vec::new() };
        self.step(run, Event::StageDone { ask, rows: &rows }, table);
    }

    /// A stage request has no result by its deadline.
    pub(super) fn expired(&mut self, Part { run, ask }: Part, table: &RequestTable) {
        self.step(run, Event::StageEnded { ask, lost: Lost::Dropped(DropReason::QueueExpired) }, table);
    }

    fn step(&mut self, number: u64, event: Event<'_>, table: &RequestTable) {
        let Some(hosted) = self.runs.get_mut(&number) else { return };
        if let Event::StageDone { ask, .. } | Event::StageEnded { ask, .. } = event {
            hosted.open.remove(&ask);
        }
        let (now, mut actions) = (Time::ZERO + Nanos::from(hosted.began.elapsed()), Vec::new());
        let is_taken = hosted.run.step(now, event, &mut actions);
        report_violation(hosted.check.stepped(&event, is_taken, &actions));
        self.act(number, &actions, table);
    }

    fn act(&mut self, number: u64, actions: &[Action], table: &RequestTable) {
        for action in actions {
            let Some(hosted) = self.runs.get_mut(&number) else { return };
            match *action {
                Action::Ask(ask) => {
                    let until = hosted.began + Duration::from(ask.deadline.since(Time::ZERO));
                    for id in ask.ids() {
                        let sequence = table.submit_stage(ask.stage, until, Part { run: number, ask: id });
                        hosted.open.insert(id, sequence);
                    }
                }
                Action::Withdraw(id) => {
                    let sequence = hosted.open.remove(&id);
                    if let Some(sequence) = sequence.filter(|_| !self.cluster.plants.has(Plant::WithdrawsForgotten)) {
                        table.withdraw(sequence);
                    }
                }
                Action::End { outcome, .. } => self.end(number, outcome, table),
            }
        }
    }

    fn end(&mut self, number: u64, outcome: Outcome, table: &RequestTable) {
        let Some(hosted) = self.runs.remove(&number) else { return };
        let left = table.open_of(number);
        if left > 0 {
            let detail = format!("{left} stage requests are open after the end of request {number}");
            symphony_telemetry::violated(Invariant::P1, detail);
        }
        let mut ledger = self.cluster.ledger.borrow_mut();
        match outcome {
            Outcome::InTime | Outcome::Late => ledger.answered += 1,
            Outcome::Dropped(_) | Outcome::Failed(_) => {
                ledger.dropped += 1;
                ledger.dropped_in_peace += u64::from(hosted.in_peace);
            }
            Outcome::Cancelled => {}
        }
    }
}

/// Counts what was found; the judge looks at the counts.
fn report_violation(judged: Result<(), Violation>) {
    if let Err(Violation { invariant, detail }) = judged {
        symphony_telemetry::violated(invariant, detail);
    }
}

fn plan() -> Result<RunPlan, Box<dyn std::error::Error>> {
    let stage = |name: &str| -> Result<Stage, Box<dyn std::error::Error>> {
        Ok(Stage { name: name.into(), model: name.into(), profile: LatencyProfile::from_line(1.0, 2.0, 8)? })
    };
    let edge = EdgeSpec {
        from: "find".into(),
        to: "name".into(),
        gamma: f64::from(ROWS_MAX) / 2.0,
        per_row: true,
        condition: None,
        most: Some(ROWS_MAX),
    };
    let (slo, stages) = (Nanos::from(DEADLINE), vec![stage("find")?, stage("name")?]);
    let spec = PipelineSpec {
        name: "find-and-name".into(),
        slo,
        value: RequestValue::ONE,
        partial: false,
        stages,
        edges: vec![edge],
    };
    let planned: Result<RunPlan, Refused> =
        Pipeline::new(spec).and_then(|pipeline| RunPlan::new(&pipeline, &[BUDGET; 2], Nanos::ZERO));
    Ok(planned?)
}
