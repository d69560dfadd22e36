//! The report of a run, from everything that was observed.

use std::collections::BTreeMap;
use std::time::Instant;

use symphony_config::Timing;
use symphony_load::{ModelReport, Report as LoadReport};

use crate::admin::{Acked, Story};
use crate::checker::{Evidence, judge};
use crate::journal::Executions;
use crate::load::{Fate, Observation};
use crate::report::{Fault, Ledger, Report};
use crate::run_failure::RunFailure;
use crate::scenario::{Aim, Promise, Round};

use super::Times;
use super::figures::{self, Figures, attainment};
use super::machine_clock::MachineClock;
use super::round::{FrontendStruck, RoundRun};

/// A run that is over.
pub(crate) struct Conclusion<'a> {
    pub(crate) scenario: &'a str,
    pub(crate) shape: &'a Round,
    pub(crate) promise: &'a Promise,
    pub(crate) aim: &'a Aim,
    pub(crate) seed: u64,
    pub(crate) timing: Timing,
    pub(crate) noise: f64,
    pub(crate) times: Times,
    pub(crate) network: &'static str,
    pub(crate) rounds: &'a [RoundRun],
    /// Faults that struck a frontend.
    pub(crate) frontends_struck: &'a [FrontendStruck],
    pub(crate) load: &'a LoadReport,
    pub(crate) observations: &'a [Observation],
    /// Models with load.
    pub(crate) models: usize,
    pub(crate) clock: MachineClock,
    pub(crate) ledger: Ledger,
    pub(crate) ledger_by: &'static str,
    pub(crate) executions: &'a Executions,
    /// Acknowledged writes of each control group that is written to.
    pub(crate) acked: &'a [&'a [Acked]],
    pub(crate) writes_lost: &'a [String],
    pub(crate) story: &'a Story,
    pub(crate) idle: Vec<&'static str>,
    pub(crate) findings: &'a [String],
    pub(crate) views_compared: u64,
    pub(crate) fullest_permille: u64,
    pub(crate) invariant_violations: &'a [(String, u64)],
    pub(crate) run_failure: Option<&'a RunFailure>,
}

impl Conclusion<'_> {
    /// Judges the run.
    pub(crate) fn report(self) -> Report {
        let Self { executions, story, invariant_violations, writes_lost, ledger, .. } = self;
        let figures = Figures {
            observations: self.observations,
            acked: self.acked,
            models: self.models,
            executions,
            clock: self.clock,
        };
        let faults: Vec<Fault> = self.rounds.iter().flat_map(|round| round.faults.clone()).collect();
        let rounds: Vec<_> = self.rounds.iter().map(|round| figures.of(round, self.shape)).collect();
        let first_fault = self.rounds.iter().map(|round| round.struck_at).min();
        let in_calm = |one: &&Observation| first_fault.is_none_or(|first| one.ended < first) && one.fate != Fate::Open;
        let in_time = |one: &&Observation| one.fate == Fate::InTime;
        let count = |number: usize| number as u64;
        let calm = (
            count(self.observations.iter().filter(in_calm).count()),
            count(self.observations.iter().filter(in_calm).filter(in_time).count()),
        );
        let failed_for = failed_for(self.observations, first_fault, self.times);
        let evidence = Evidence {
            scenario: self.scenario,
            faults: &faults,
            rounds: &rounds,
            ledger,
            failed_for,
            unanswered: in_words(self.observations, self.load, |one| one.fate == Fate::Open),
            asked_again_unstruck: in_words(self.observations, self.load, |one| {
                asked_again_unstruck(one, self.frontends_struck)
            }),
            answered_twice_of: of_each(self.load, |model| model.answered_twice),
            foreign: self.load.total.foreign,
            foreign_of: of_each(self.load, |model| model.foreign),
            invariant_violations,
            executions,
            idle: self.idle,
            writes_lost,
            findings: self.findings,
            story,
            run_failure: self.run_failure,
            calm,
            times: self.times,
            load_failure: (!self.load.verdict.passed()).then(|| self.load.verdict.to_string()),
        };
        let (outcome, reasons) = judge(&evidence, self.promise);
        let complete = executions.missing == 0 && executions.ran > 0;
        let &Executions { stale, overlapping, ran: batches, requests, again, .. } = executions;
        let summaries = figures::summaries(&rounds);
        Report {
            scenario: self.scenario.to_owned(),
            outcome,
            dispatch_gap_ms: summaries.dispatch_gap,
            commit_gap_ms: summaries.commit_gap,
            ledger,
            stale_tokens_accepted: complete.then_some(stale),
            overlapping_batches: complete.then_some(overlapping),
            reasons,
            seed: self.seed,
            timing: self.timing,
            noise: self.noise,
            network: self.network,
            named_after_ms: summaries.named_after,
            gap_before_ms: summaries.gap_before,
            commit_gap_before_ms: summaries.commit_gap_before,
            elsewhere_gap_ms: summaries.elsewhere_gap,
            elsewhere_bad: rounds.iter().map(|round| round.elsewhere_bad).sum(),
            served_on_ms: summaries.served_on,
            obeyed_ms: summaries.obeyed,
            down_after_ms: summaries.down_after,
            sent_during: rounds.iter().map(|round| round.sent_during).sum(),
            bad_during: rounds.iter().map(|round| round.bad_during).sum(),
            bad_after: rounds.iter().map(|round| round.bad_after).sum(),
            asked_again: count(self.observations.iter().filter(|one| one.asked_again).count()),
            serving_after_ms: summaries.serving_after,
            whole_after_ms: summaries.whole_after,
            slo_attainment: attainment(self.observations, self.rounds),
            aims: figures::aims(self.aim, &summaries, &rounds),
            ledger_by: self.ledger_by,
            batches,
            requests_executed: requests,
            executed_again: again,
            writes_acknowledged: self.acked.iter().map(|acked| acked.len() as u64).sum(),
            writes_lost: count(writes_lost.len()),
            admin_operations: story.operations,
            admin_operations_open: story.open,
            admin_linearizable: match (&story.contradiction, &story.undecided) {
                (None, None) => Some(true),
                (Some(_), _) => Some(false),
                (None, Some(_)) => None,
            },
            views_compared: self.views_compared,
            gpu_memory_fullest: self.fullest_permille as f64 / 1e3,
            invariant_violations: invariant_violations.iter().map(|(_, count)| count).sum(),
            faults,
            rounds,
        }
    }
}

/// How many requests failed since the first fault, for each reason.
fn failed_for(observations: &[Observation], first_fault: Option<Instant>, times: Times) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for one in observations {
        let Fate::Failed(reason) = one.fate else { continue };
        if first_fault.is_none_or(|first| one.ended >= first) && !reason.is_some_and(|reason| times.excuse(reason)) {
            *counts.entry(one.fate.label()).or_default() += 1;
        }
    }
    counts
}

/// Whether a request went to a second frontend while no fault explains that the first was gone or drained.
fn asked_again_unstruck(one: &Observation, frontends_struck: &[FrontendStruck]) -> bool {
    one.asked_again && !frontends_struck.iter().any(|struck| struck.explains(one))
}

/// The requests of which something is true.
fn in_words(observations: &[Observation], load: &LoadReport, is: impl Fn(&Observation) -> bool) -> Vec<String> {
    let Some(first) = observations.first() else { return Vec::new() };
    let these = observations.iter().enumerate().filter(|(_, one)| is(one));
    let words = |(number, one): (usize, &Observation)| {
        let model = load.models.get(one.model).map_or("?", |model| model.name.as_str());
        let at_s = one.sent.saturating_duration_since(first.sent).as_secs_f64();
        format!("request {number}, for {model}, sent {at_s:.3} s after the first")
    };
    these.map(words).collect()
}

/// The models of which there are any, and how many.
fn of_each(load: &LoadReport, count: impl Fn(&ModelReport) -> u64) -> Vec<String> {
    let any = load.models.iter().filter(|model| count(model) > 0);
    any.map(|model| format!("{} {}", model.name, count(model))).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use symphony_types::FailReason;

    use super::*;

    #[test]
    fn what_failed_before_anything_happened_does_not_count_nor_what_a_busy_machine_causes_where_times_are_not_judged() {
        let first = Instant::now();
        let failed = |after_ms, reason| Observation {
            model: 0,
            sent: first,
            ended: first + Duration::from_millis(after_ms),
            asked_again: false,
            fate: Fate::Failed(reason),
        };
        let struck = first + Duration::from_millis(10);
        let all = [
            failed(9, Some(FailReason::ModelNotReady)),
            failed(10, Some(FailReason::ModelNotReady)),
            failed(11, Some(FailReason::NoAnswer)),
            failed(12, None),
            Observation { fate: Fate::InTime, ..failed(13, None) },
        ];
        let judged = failed_for(&all, Some(struck), Times::Judged);
        assert_eq!(judged, [("by the client", 1), ("model_not_ready", 1), ("no_answer", 1)].into());
        let reported = failed_for(&all, Some(struck), Times::Reported);
        assert_eq!(reported, [("by the client", 1), ("model_not_ready", 1)].into());
        assert_eq!(failed_for(&all, None, Times::Judged).values().sum::<u64>(), 4, "no fault was installed");
    }

    #[test]
    fn a_request_goes_to_a_second_frontend_only_after_a_fault_struck_one_and_before_the_next_round() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let struck =
            [FrontendStruck { from: at(100), until: Some(at(200)) }, FrontendStruck { from: at(300), until: None }];
        let found = |sent, ended, fate| {
            let one = Observation { model: 0, sent: at(sent), ended: at(ended), asked_again: true, fate };
            assert!(!asked_again_unstruck(&Observation { asked_again: false, ..one }, &[]), "it was not asked again");
            asked_again_unstruck(&one, &struck)
        };
        assert!(found(80, 99, Fate::InTime) && found(200, 299, Fate::InTime), "no frontend had been struck");
        assert!(!found(80, 100, Fate::InTime), "it was under way");
        assert!(!found(80, 80, Fate::Open), "and may still be");
        assert!(!found(199, 250, Fate::InTime) && !found(900, 950, Fate::Failed(None)));
    }
}
