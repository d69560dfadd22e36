//! What a run found: the words of every chaos report.

use std::collections::BTreeMap;

use serde::Serialize;

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Everything promised held.
    #[default]
    Pass,
    /// The run itself went wrong: it proves nothing about the system.
    Harness,
    /// The system broke a promise.
    Violation,
}

/// What became of one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultState {
    /// It happened, to the process it was meant for.
    Installed,
    /// It did not happen.
    Skipped,
    /// It may have happened, or have hit a process that had just lost the role.
    Indeterminate,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Its kind, as scenarios write it.
    pub kind: &'static str,
    /// What became of it.
    pub state: FaultState,
    /// The processes that it hit.
    pub who: Vec<String>,
    /// The round it belongs to, from 1.
    pub round: u32,
    /// Which of its variants, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
    /// Why it is not installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Quantiles of a few values: nearest rank, so every figure is one that was measured. All null if there are no values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// How many values.
    pub n: usize,
    /// The median.
    pub p50: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
}

impl Summary {
    /// Of these values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let rank = |quantile: f64| (values.len() as f64 * quantile).ceil() as usize;
        let at = |quantile| values.get(rank(quantile).saturating_sub(1)).copied();
        Self { n: values.len(), p50: at(0.5), p99: at(0.99), max: values.last().copied() }
    }
}

/// What became of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Accepted.
    pub accepted: u64,
    /// Answered by their deadline.
    pub in_time: u64,
    /// Answered after it.
    pub late: u64,
    /// Given up on purpose.
    pub dropped: u64,
    /// Ended by an error.
    pub failed: u64,
    /// Withdrawn by their clients.
    pub cancelled: u64,
    /// Never ended, by the client's word.
    pub lost: u64,
    /// Ended twice, by the client's word.
    pub answered_twice: u64,
}

/// One round of faults and what followed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RoundReport {
    /// From 1.
    pub round: u32,
    /// The processes that the faults hit.
    pub victims: Vec<String>,
    /// Sub-clusters that they led or served.
    pub struck: Vec<String>,
    /// From the first fault until another leader was known of all sub-clusters whose leader was struck: by its first
    /// seal in the journals or the view that names it, whichever is earlier; none if none was struck, or none changed.
    /// In a federation until the plan named new homes.
    pub named_after_ms: Option<f64>,
    /// The longest time without a good answer, of the sub-clusters that were struck; of all, if none was.
    pub dispatch_gap_ms: f64,
    /// That time in the sub-clusters that were not struck; none if all were.
    pub elsewhere_gap_ms: Option<f64>,
    /// Requests to sub-clusters that were not struck that ended without a good answer.
    pub elsewhere_bad: u64,
    /// The longest time without a good answer in as long a time before the faults: what load and machine cause.
    pub gap_before_ms: f64,
    /// The longest time without an acknowledged write; none if nothing writes.
    pub commit_gap_ms: Option<f64>,
    /// That time before the faults.
    pub commit_gap_before_ms: Option<f64>,
    /// How long every sub-cluster went on serving from the first fault on, at most until the last one ended.
    pub served_on_ms: f64,
    /// From the first fault until a GPU took the last plan of a leader that was cut off from a quorum, while it was;
    /// none if no leader was.
    pub obeyed_ms: Option<f64>,
    /// From the first fault until a view showed every struck backend as down; none if none was struck, or not all were
    /// shown.
    pub down_after_ms: Option<f64>,
    /// Requests sent from the first fault until the cluster was whole and served again.
    pub sent_during: u64,
    /// Those of them that ended without a good answer.
    pub bad_during: u64,
    /// Requests sent from the end of the last fault on, as long as the round is watched, that ended without a good
    /// answer.
    pub bad_after: u64,
    /// How these ended, and how many of them.
    pub bad_after_for: BTreeMap<&'static str, u64>,
    /// From the end of the last fault until every sub-cluster answered a request in time that was sent after it.
    pub serving_after_ms: Option<f64>,
    /// From the end of the last fault until all processes were registered and every sub-cluster led.
    pub whole_after_ms: Option<f64>,
    /// What was missing when the cluster was last not whole; none if it never was seen so.
    pub missing_last: Option<String>,
}

/// Shares of requests that were answered in time: in the second before the faults, from the first fault until the
/// cluster was whole again, and in the second after that. Null where nothing was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Attainment {
    /// Before.
    pub before: Option<f64>,
    /// During.
    pub during: Option<f64>,
    /// After.
    pub after: Option<f64>,
}

/// A figure against what is aimed at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AimReport {
    /// Which.
    pub what: &'static str,
    /// At most this.
    pub aim: f64,
    /// What it was.
    pub measured: Option<f64>,
    /// Whether it was met.
    pub met: bool,
}

/// What a run found. `chaos/README.md` says how each figure is measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// How it ended.
    pub outcome: Outcome,
    /// All faults of all rounds.
    pub faults: Vec<Fault>,
    /// Over rounds.
    pub dispatch_gap_ms: Summary,
    /// Over rounds.
    pub commit_gap_ms: Summary,
    /// What became of the requests.
    pub ledger: Ledger,
    /// Batches that backends accepted below what had been asked for; null if the journals have gaps.
    pub stale_tokens_accepted: Option<u64>,
    /// Batches that ran at once on one GPU; null if the journals have gaps.
    pub overlapping_batches: Option<u64>,
    /// Why it is no pass.
    pub reasons: Vec<String>,
    /// What it was run with.
    pub seed: u64,
    /// The timing profile.
    pub timing: symphony_config::Timing,
    /// By how much batches missed their profiles.
    pub noise: f64,
    /// How the processes reached each other.
    pub network: &'static str,
    /// Over rounds: see [`RoundReport`].
    pub named_after_ms: Summary,
    /// Over rounds.
    pub gap_before_ms: Summary,
    /// Over rounds.
    pub commit_gap_before_ms: Summary,
    /// Over rounds.
    pub elsewhere_gap_ms: Summary,
    /// Over all rounds.
    pub elsewhere_bad: u64,
    /// Over rounds.
    pub served_on_ms: Summary,
    /// Over rounds.
    pub obeyed_ms: Summary,
    /// Over rounds.
    pub down_after_ms: Summary,
    /// Over all rounds: see [`RoundReport`].
    pub sent_during: u64,
    /// Over all rounds.
    pub bad_during: u64,
    /// Over all rounds.
    pub bad_after: u64,
    /// Requests of the whole run that went to a second frontend, since the first one was gone or drained.
    pub asked_again: u64,
    /// Over rounds.
    pub serving_after_ms: Summary,
    /// Over rounds.
    pub whole_after_ms: Summary,
    /// Shares of requests answered in time.
    pub slo_attainment: Attainment,
    /// Figures against aims.
    pub aims: Vec<AimReport>,
    /// Where the ledger's counts come from: the frontends, or the client where a frontend ended.
    pub ledger_by: &'static str,
    /// Batches that the journals have.
    pub batches: u64,
    /// Requests that the journals have as executed, and executions beyond the first of each.
    pub requests_executed: u64,
    /// See there.
    pub executed_again: u64,
    /// Writes acknowledged, and those of them that the cluster did not hold at the end.
    pub writes_acknowledged: u64,
    /// See there.
    pub writes_lost: u64,
    /// Operations in the history of the control group's API, and those of them with an unknown end.
    pub admin_operations: u64,
    /// See there.
    pub admin_operations_open: u64,
    /// Whether that history is linearizable; null if that could not be decided.
    pub admin_linearizable: Option<bool>,
    /// Views of replicas that could be compared at equal indexes.
    pub views_compared: u64,
    /// The largest share of a GPU's memory that models took, by those views.
    pub gpu_memory_fullest: f64,
    /// Violations of named invariants, as counted by the processes that were alive at the end.
    pub invariant_violations: u64,
    /// Each round.
    pub rounds: Vec<RoundReport>,
}

/// What programs read: the part of a report that stays the same from release to release.
#[derive(Debug, Serialize)]
pub struct ReportSummary<'a> {
    scenario: &'a str,
    outcome: Outcome,
    faults: Vec<SummarisedFault>,
    dispatch_gap_ms: Summary,
    commit_gap_ms: Summary,
    ledger: Ledger,
    stale_tokens_accepted: Option<u64>,
    overlapping_batches: Option<u64>,
    reasons: Vec<String>,
}

#[derive(Debug, Serialize)]
struct SummarisedFault {
    kind: &'static str,
    state: FaultState,
}

impl<'a> ReportSummary<'a> {
    /// Of a run that came to no report, and why.
    #[must_use]
    pub fn without_report(scenario: &'a str, why: String) -> Self {
        Self {
            scenario,
            outcome: Outcome::Harness,
            faults: Vec::new(),
            dispatch_gap_ms: Summary::default(),
            commit_gap_ms: Summary::default(),
            ledger: Ledger::default(),
            stale_tokens_accepted: None,
            overlapping_batches: None,
            reasons: vec![why],
        }
    }
}

impl Report {
    /// For programs.
    #[must_use]
    pub fn brief(&self) -> ReportSummary<'_> {
        ReportSummary {
            scenario: &self.scenario,
            outcome: self.outcome,
            faults: self.faults.iter().map(|&Fault { kind, state, .. }| SummarisedFault { kind, state }).collect(),
            dispatch_gap_ms: self.dispatch_gap_ms,
            commit_gap_ms: self.commit_gap_ms,
            ledger: self.ledger,
            stale_tokens_accepted: self.stale_tokens_accepted,
            overlapping_batches: self.overlapping_batches,
            reasons: self.reasons.clone(),
        }
    }

    /// For people.
    #[must_use]
    pub fn table(&self) -> String {
        let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.1}"));
        let line = |what: &str, s: Summary| match s.n {
            0 => format!("  {what:<34} not measured\n"),
            n => {
                format!("  {what:<34} n {n:>3}   p50 {:>7}   p99 {:>7}   max {:>7}\n", ms(s.p50), ms(s.p99), ms(s.max))
            }
        };
        let Ledger { accepted, in_time, late, dropped, failed, cancelled, lost, answered_twice } = self.ledger;
        let count = |state| self.faults.iter().filter(|fault| fault.state == state).count();
        let (installed, skipped) = (count(FaultState::Installed), count(FaultState::Skipped));
        let unsure = count(FaultState::Indeterminate);
        let mut out = format!(
            "{}: {:?} ({} rounds, seed {}, links {}): faults: {installed} installed, {skipped} skipped, {unsure} indeterminate\n",
            self.scenario,
            self.outcome,
            self.rounds.len(),
            self.seed,
            self.network,
        );
        out += &line("dispatch gap, ms", self.dispatch_gap_ms);
        out += &line("  before the faults, ms", self.gap_before_ms);
        out += &line("  elsewhere, ms", self.elsewhere_gap_ms);
        out += &line("commit gap, ms", self.commit_gap_ms);
        out += &line("  before the faults, ms", self.commit_gap_before_ms);
        out += &line("new leader named after, ms", self.named_after_ms);
        out += &line("served on after the fault, ms", self.served_on_ms);
        out += &line("cut-off leader obeyed for, ms", self.obeyed_ms);
        out += &line("struck backends down after, ms", self.down_after_ms);
        out += &format!(
            "  not answered in time: {} of {} sent until whole again, {} sent after the faults' end; {} went to a \
             second frontend\n",
            self.bad_during, self.sent_during, self.bad_after, self.asked_again
        );
        out += &line("serving after the fault's end, ms", self.serving_after_ms);
        out += &line("whole after the fault's end, ms", self.whole_after_ms);
        let percent = |share: Option<f64>| share.map_or_else(|| "-".into(), |share| format!("{:.2} %", share * 100.0));
        let Attainment { before, during, after } = self.slo_attainment;
        out += &format!(
            "  answered in time: before {}, during {}, after {}\n",
            percent(before),
            percent(during),
            percent(after)
        );
        out += &format!(
            "  {accepted} accepted: {in_time} in time, {late} late, {dropped} dropped, {failed} failed, {cancelled} \
             cancelled; {lost} lost, {answered_twice} answered twice; by the {}\n",
            self.ledger_by
        );
        let known = |count: Option<u64>| count.map_or_else(|| "unknown".into(), |count| count.to_string());
        out += &format!(
            "  {} batches: {} stale tokens accepted, {} overlapping; {} of {} executions were repeats\n",
            self.batches,
            known(self.stale_tokens_accepted),
            known(self.overlapping_batches),
            self.executed_again,
            self.requests_executed,
        );
        let story = match self.admin_linearizable {
            Some(true) => "linearizable",
            Some(false) => "NOT linearizable",
            None => "not decided",
        };
        out += &format!(
            "  {} writes acknowledged, {} lost; {} admin operations, {} of them open: {story}; {} views compared, GPUs at most {:.0} % full\n",
            self.writes_acknowledged,
            self.writes_lost,
            self.admin_operations,
            self.admin_operations_open,
            self.views_compared,
            self.gpu_memory_fullest * 100.0
        );
        for AimReport { what, aim, measured, met } in &self.aims {
            let word = if *met { "met" } else { "missed" };
            out += &format!("  aim {what} {aim}: {} ({word})\n", ms(*measured));
        }
        for fault in self.faults.iter().filter(|fault| fault.state != FaultState::Installed) {
            let why = fault.why.as_deref().unwrap_or_default();
            out += &format!("  round {}: {} {:?}: {why}\n", fault.round, fault.kind, fault.state);
        }
        self.reasons.iter().for_each(|reason| out += &format!("  {reason}\n"));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_read_exactly_these_keys() {
        let summary = Summary::of([10.0, 20.0]);
        let fault = SummarisedFault { kind: "kill", state: FaultState::Installed };
        let brief = ReportSummary {
            scenario: "overlap",
            outcome: Outcome::Pass,
            faults: vec![fault],
            dispatch_gap_ms: summary,
            commit_gap_ms: Summary::default(),
            ledger: Ledger { accepted: 2, in_time: 2, ..Ledger::default() },
            stale_tokens_accepted: Some(0),
            overlapping_batches: None,
            reasons: vec!["I3: lost".into()],
        };
        let expected = r#"{"scenario":"overlap","outcome":"pass","faults":[{"kind":"kill","state":"installed"}],
            "dispatch_gap_ms":{"n":2,"p50":10.0,"p99":20.0,"max":20.0},
            "commit_gap_ms":{"n":0,"p50":null,"p99":null,"max":null},
            "ledger":{"accepted":2,"in_time":2,"late":0,"dropped":0,"failed":0,"cancelled":0,"lost":0,"answered_twice":0},
            "stale_tokens_accepted":0,"overlapping_batches":null,"reasons":["I3: lost"]}"#;
        assert_eq!(serde_json::to_string(&brief).unwrap(), expected.replace("\n            ", ""));
    }

    #[test]
    fn a_run_without_a_report_says_so_with_the_same_keys() {
        let none = r#"{"n":0,"p50":null,"p99":null,"max":null}"#;
        let ledger = serde_json::to_string(&Ledger::default()).unwrap();
        let expected = format!(
            r#"{{"scenario":"overlap","outcome":"harness","faults":[],"dispatch_gap_ms":{none},"commit_gap_ms":{none},"ledger":{ledger},"stale_tokens_accepted":null,"overlapping_batches":null,"reasons":["no port"]}}"#
        );
        assert_eq!(
            serde_json::to_string(&ReportSummary::without_report("overlap", "no port".into())).unwrap(),
            expected
        );
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        assert_eq!(Summary::of([]), Summary::default());
        assert_eq!(Summary::of([3.0]), Summary { n: 1, p50: Some(3.0), p99: Some(3.0), max: Some(3.0) });
        let many = Summary::of((1..=200).rev().map(f64::from));
        assert_eq!((many.n, many.p50, many.p99, many.max), (200, Some(100.0), Some(198.0), Some(200.0)));
    }
}
