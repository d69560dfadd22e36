//! The demo's results, for people and programs, and whether they are good enough.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use symphony_load::{ModelReport, Report, Tally};
use symphony_pipeline::PipelineDeclaration;
use symphony_protocol::view::ModelSpec;
use symphony_types::{Nanos, NodeId};

use super::demo_models::{CANVAS, DIGITS};

/// The least share of correctly classified digits. The model gets 98.5 % of the held-out set right, and 98.4 % of those
/// on canvases; the load sends about that many, so a lower share means an error of the system.
const ACCURACY_MIN: f64 = 0.96;
/// The limit of goodput: the p99 meets the SLO if at most this share is bad.
const BAD_RATE_MAX: f64 = 0.01;
/// The take-over is measured in this time around the kill.
const BEFORE_KILL: Duration = Duration::from_millis(200);
const AFTER_KILL: Duration = Duration::from_secs(6);

/// A model or a pipeline that is asked.
#[derive(Clone, Debug)]
pub(crate) struct DemoTarget {
    name: String,
    slo: Nanos,
    /// The sub-clusters that answer it, one for each stage of a pipeline.
    subclusters: Vec<String>,
}

impl DemoTarget {
    /// The models, and the pipeline of some of them.
    pub(crate) fn all(models: &[ModelSpec], pipeline: &PipelineDeclaration) -> Vec<Self> {
        let of = |model: &ModelSpec| model.subcluster.clone();
        let stages = pipeline.stages.iter().filter_map(|stage| models.iter().find(|model| model.name == stage.model));
        let pipeline = Self { name: pipeline.name.clone(), slo: pipeline.slo(), subclusters: stages.map(of).collect() };
        let models = models.iter().map(|model| {
            let (name, slo) = (model.name.clone(), model.slo);
            Self { name, slo, subclusters: vec![of(model)] }
        });
        models.chain([pipeline]).collect()
    }
}

/// The kill and what followed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Takeover {
    pub(crate) victim: NodeId,
    pub(crate) leader: NodeId,
    pub(crate) subclusters: Vec<String>,
    pub(crate) was_control_leader: bool,
    /// Since the start of the load.
    pub(crate) killed_at: Duration,
    /// From the kill until the control group had appointed another leader.
    pub(crate) assigned_after: Duration,
}

#[derive(Debug, Serialize)]
pub(crate) struct DemoReport {
    models: Vec<DemoModel>,
    takeover: Takeover,
    /// The longest time around the kill without a good answer by a sub-cluster of the killed leader.
    blackout_ms: Option<f64>,
    requests_lost: i64,
    requests_answered_twice: u64,
    answers_to_other_requests: u64,
    /// The frontend's counts.
    ledger: serde_json::Value,
    generator: Vec<String>,
    generator_passed: bool,
    logs: String,
}

#[derive(Debug, Serialize)]
struct DemoModel {
    #[serde(flatten)]
    report: ModelReport,
    slo_ms: f64,
    /// Whether its leader was killed.
    in_blackout: bool,
    /// The greatest share of bad requests that is good enough.
    bad_allowed: f64,
}

impl DemoReport {
    pub(crate) fn new(
        reports: Vec<Report>,
        takeover: Takeover,
        ledger: serde_json::Value,
        targets: &[DemoTarget],
        warmup: Duration,
        dir: &Path,
    ) -> Self {
        let targets: BTreeMap<_, _> = targets.iter().map(|target| (target.name.as_str(), target)).collect();
        let is_led = |target: &&DemoTarget| target.subclusters.iter().any(|s| takeover.subclusters.contains(s));
        let in_blackout = |name: &str| targets.get(name).is_some_and(is_led);
        let from = takeover.killed_at.saturating_sub(BEFORE_KILL).max(warmup);
        let to = takeover.killed_at + AFTER_KILL;
        // Of all that a sub-cluster answers together: requests of one model alone come too seldom to show it.
        let blackout_of = |subcluster: &String| {
            let mut answers: Option<Tally> = None;
            for (model, tally) in reports.iter().flat_map(|report| report.models.iter().zip(&report.tallies)) {
                if targets.get(model.name.as_str()).is_some_and(|target| target.subclusters.contains(subcluster)) {
                    match &mut answers {
                        Some(answers) => answers.merge(tally),
                        None => answers = Some(tally.clone()),
                    }
                }
            }
            Some(answers?.longest_gap(from, to)?.length.as_secs_f64() * 1e3)
        };
        let blackout_ms = takeover.subclusters.iter().filter_map(blackout_of).reduce(f64::max);
        let sum = |count: fn(&ModelReport) -> u64| reports.iter().map(|report| count(&report.total)).sum::<u64>();
        let unsettled = unsettled(&ledger);
        let each = |report: &Report| {
            // All that comes while another leader may be taking over.
            let in_takeover = AFTER_KILL.as_secs_f64() / report.duration_s;
            let model = |report: &ModelReport| {
                let in_blackout = in_blackout(&report.name);
                DemoModel {
                    slo_ms: targets.get(report.name.as_str()).map_or(0.0, |target| target.slo.as_millis_f64()),
                    in_blackout,
                    bad_allowed: BAD_RATE_MAX + if in_blackout { in_takeover } else { 0.0 },
                    report: report.clone(),
                }
            };
            report.models.iter().map(model).collect::<Vec<_>>()
        };
        Self {
            models: reports.iter().flat_map(each).collect(),
            blackout_ms,
            // Lost requests are those that either side misses: clients an answer, the frontend an outcome.
            requests_lost: sum(|m| m.lost) as i64 + unsettled.abs(),
            requests_answered_twice: sum(|m| m.answered_twice),
            answers_to_other_requests: sum(|m| m.foreign),
            ledger,
            generator: reports.iter().map(|report| report.verdict.to_string()).collect(),
            generator_passed: reports.iter().all(|report| report.verdict.passed()),
            logs: dir.join("logs").display().to_string(),
            takeover,
        }
    }

    /// Deviations from the expected result; empty if there are none.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        if self.requests_lost != 0 {
            failures.push(format!("{} requests were lost", self.requests_lost));
        }
        if self.requests_answered_twice != 0 {
            failures.push(format!("{} requests were answered twice", self.requests_answered_twice));
        }
        if self.answers_to_other_requests != 0 {
            failures.push(format!("{} answers belonged to other requests", self.answers_to_other_requests));
        }
        for DemoModel { report, bad_allowed, slo_ms, .. } in &self.models {
            if [DIGITS, CANVAS].contains(&report.name.as_str()) {
                match report.accuracy {
                    Some(accuracy) if accuracy >= ACCURACY_MIN => {}
                    Some(accuracy) => failures.push(format!(
                        "{:.1} % of the digits of {} were right, expected at least {:.0} %",
                        100.0 * accuracy,
                        report.name,
                        100.0 * ACCURACY_MIN
                    )),
                    None => failures.push(format!("no digit of {} was answered", report.name)),
                }
            }
            if report.bad_rate > *bad_allowed {
                failures.push(format!(
                    "{} missed its SLO of {slo_ms:.0} ms: {:.2} % bad, at most {:.0} % are allowed",
                    report.name,
                    100.0 * report.bad_rate,
                    100.0 * bad_allowed
                ));
            }
        }
        if self.blackout_ms.is_none() {
            failures.push("the blackout could not be measured".into());
        }
        if !self.generator_passed {
            failures.push(self.generator.join("; "));
        }
        failures
    }
}

/// Accepted requests without an outcome, once nothing is in flight.
fn unsettled(ledger: &serde_json::Value) -> i64 {
    let counts: Option<symphony_frontend::LedgerCounts> = serde_json::from_value(ledger["counts"].clone()).ok();
    counts.map_or(0, |counts| counts.lost(ledger["in_flight"].as_u64().unwrap_or(0)))
}

impl fmt::Display for DemoReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        writeln!(
            f,
            "{:<10} {:>8} {:>8} {:>6} {:>8} {:>7} {:>9} {:>9} {:>9} {:>7} {:>8}",
            "model", "offered", "good", "late", "dropped", "failed", "p50 ms", "p99 ms", "SLO ms", "batch", "right"
        )?;
        for DemoModel { report: m, slo_ms, in_blackout, .. } in &self.models {
            let note = match *in_blackout {
                true if m.name == CANVAS => "  (the leader of its stages was killed)",
                true => "  (its leader was killed)",
                false => "",
            };
            let optional =
                |value: Option<f64>, unit: &str| value.map_or_else(|| "-".into(), |v| format!("{v:.1}{unit}"));
            writeln!(
                f,
                "{:<10} {:>8} {:>8} {:>6} {:>8} {:>7} {:>9.1} {:>9.1} {:>9.0} {:>7} {:>8}{}",
                m.name,
                m.offered,
                m.good,
                m.late,
                m.dropped.values().sum::<u64>(),
                m.failed.values().sum::<u64>(),
                m.p50_ms,
                m.p99_ms,
                slo_ms,
                optional(m.mean_batch, ""),
                optional(m.accuracy.map(|a| 100.0 * a), " %"),
                note
            )?;
        }
        let t = &self.takeover;
        let also = if t.was_control_leader { ", which also led the control group" } else { "" };
        writeln!(f)?;
        writeln!(f, "leader of {} killed: {}{also}; {} took over", t.subclusters.join(", "), t.victim, t.leader)?;
        writeln!(f, "  named after          {:>8.0} ms", t.assigned_after.as_secs_f64() * 1e3)?;
        if let Some(blackout) = self.blackout_ms {
            writeln!(
                f,
                "  blackout             {blackout:>8.0} ms (longest time without a good answer around the kill)"
            )?;
        }
        writeln!(f, "requests lost          {:>8}", self.requests_lost)?;
        writeln!(f, "requests answered twice{:>8}", self.requests_answered_twice)?;
        writeln!(f, "foreign answers        {:>8}", self.answers_to_other_requests)?;
        writeln!(f, "logs: {}", self.logs)?;
        writeln!(
            f,
            "console: `symphony up --with-models` keeps a cluster running; its console is at http://127.0.0.1:8002/"
        )
    }
}
