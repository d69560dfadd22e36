//! Whether what a run saw keeps the promises.

use std::collections::BTreeMap;

use crate::admin::Story;
use crate::journal::Executions;
use crate::report::{Fault, FaultState, Ledger, Outcome, RoundReport};
use crate::run::Times;
use crate::run_failure::{FailureCause, RunFailure};
use crate::scenario::Promise;

/// What a run saw.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    /// The scenario's name.
    pub(crate) scenario: &'a str,
    pub(crate) faults: &'a [Fault],
    pub(crate) rounds: &'a [RoundReport],
    pub(crate) ledger: Ledger,
    /// Requests that failed since the first fault, so many for each reason. No promise is about those before: links are
    /// made with the first requests, and on a machine that is busy that can take longer than a request has.
    pub(crate) failed_for: BTreeMap<&'static str, u64>,
    /// Requests whose end the client never learnt of, described in words.
    pub(crate) unanswered: Vec<String>,
    /// Requests that went to a second frontend, as the first was gone or drained, though no fault had struck one since
    /// the round began; each in words.
    pub(crate) asked_again_unstruck: Vec<String>,
    /// Models whose requests ended twice, by the client's word, and how many.
    pub(crate) answered_twice_of: Vec<String>,
    /// Answers that belonged to another request.
    pub(crate) foreign: u64,
    /// The models that they were for, and how many.
    pub(crate) foreign_of: Vec<String>,
    /// Processes that counted violations of invariants, and how many.
    pub(crate) invariant_violations: &'a [(String, u64)],
    pub(crate) executions: &'a Executions,
    /// Kinds of work of which the control group did none: its history and its writes prove nothing then.
    pub(crate) idle: Vec<&'static str>,
    /// Acknowledged writes that are gone, each in words.
    pub(crate) writes_lost: &'a [String],
    /// Contradictions between what replicas reported.
    pub(crate) findings: &'a [String],
    /// Whether the answers of the control group tell one story.
    pub(crate) story: &'a Story,
    /// The error that ended the run, if one did: the cluster did not heal, a process died, or chaos could not go on.
    pub(crate) run_failure: Option<&'a RunFailure>,
    /// Why the load generator's numbers are worth nothing, if so.
    pub(crate) load_failure: Option<String>,
    /// Requests that ended before the first fault, and those of them that were answered in time.
    pub(crate) calm: (u64, u64),
    pub(crate) times: Times,
}

/// So many of what was found are named.
const NAMED_MAX: usize = 3;

/// The first of them, to follow their count; nothing where they are unknown.
fn named(all: &[String]) -> String {
    let first = all[..all.len().min(NAMED_MAX)].join("; ");
    match all.len() {
        0 => String::new(),
        1..=NAMED_MAX => format!(" ({first})"),
        _ => format!(" ({first}; and others)"),
    }
}

/// How many there are of each.
fn counted(counts: &BTreeMap<&'static str, u64>) -> String {
    counts.iter().map(|(what, count)| format!("{what} {count}")).collect::<Vec<_>>().join(", ")
}

/// The outcome, and why it is no pass. A violation counts even where the harness failed as well: what was seen was
/// seen, except for times, which a generator that lags makes by itself.
pub(crate) fn judge(evidence: &Evidence<'_>, promise: &Promise) -> (Outcome, Vec<String>) {
    let (mut broken, mut useless) = (Vec::new(), Vec::new());
    // Scenarios are compiled in: no option sets these.
    let in_load =
        |key: &str| format!("`{key}` of `[load]` in chaos/scenarios/{}.toml (and build again)", evidence.scenario);
    let Ledger { accepted, in_time, late, dropped, failed, cancelled, lost, answered_twice } = evidence.ledger;
    let ended = in_time + late + dropped + failed + cancelled;
    if lost > 0 || ended < accepted {
        broken.push(format!(
            "I3: {} requests have no outcome{}",
            lost.max(accepted.saturating_sub(ended)),
            named(&evidence.unanswered)
        ));
    }
    if answered_twice > 0 || ended > accepted {
        broken.push(format!(
            "I3: {} requests ended twice{}",
            answered_twice.max(ended.saturating_sub(accepted)),
            named(&evidence.answered_twice_of)
        ));
    }
    let unstruck = &evidence.asked_again_unstruck;
    if !unstruck.is_empty() {
        broken.push(format!(
            "I3: {} requests went to a second frontend, since the first was gone or drained, and no fault had struck one{}",
            unstruck.len(),
            named(unstruck)
        ));
    }
    let failed_since: u64 = evidence.failed_for.values().sum();
    if let Some(promised) = promise.failed_max.filter(|promised| failed_since > *promised) {
        let reasons = counted(&evidence.failed_for);
        broken.push(format!("{failed_since} requests failed ({reasons}); promised are {promised}"));
    }
    if evidence.foreign > 0 {
        broken.push(format!(
            "I3: {} answers belonged to other requests{}",
            evidence.foreign,
            named(&evidence.foreign_of)
        ));
    }
    if !evidence.invariant_violations.is_empty() {
        let sum: u64 = evidence.invariant_violations.iter().map(|(_, count)| count).sum();
        let who: Vec<_> = evidence.invariant_violations.iter().map(|(who, count)| format!("{who} {count}")).collect();
        broken.push(format!("the processes counted {sum} violations of invariants{}", named(&who)));
    }
    let Executions { stale, overlapping, disputed, missing, findings, ran, .. } = evidence.executions;
    if stale + overlapping + disputed > 0 {
        broken.push(format!(
            "I1, I2: {stale} stale tokens accepted, {overlapping} overlapping batches, {disputed} orders under a disputed token"
        ));
        broken.extend(findings.iter().cloned());
    }
    if !evidence.writes_lost.is_empty() {
        let lost = evidence.writes_lost;
        broken.push(format!("I6: {} acknowledged writes are gone{}", lost.len(), named(lost)));
    }
    broken.extend(evidence.findings.iter().cloned());
    broken.extend(evidence.story.contradiction.iter().map(|why| format!("I4: {why}")));
    useless.extend(
        evidence
            .story
            .undecided
            .iter()
            .map(|why| format!("I4 is not decided: {why}; lower {}, or `--repeat`", in_load("admin_clients"))),
    );
    // If the machine is too small for the scenario even without faults, times cannot be judged.
    let (ended_in_calm, good_in_calm) = evidence.calm;
    let starved = good_in_calm * 2 < ended_in_calm;
    if starved && evidence.times == Times::Judged {
        useless.push(format!(
            "before the first fault {good_in_calm} of {ended_in_calm} requests were answered in time: the machine is too small for the scenario; \
             give it cores, or lower {}",
            in_load("rate_rps")
        ));
    }
    if let Some(RunFailure { cause, words }) = evidence.run_failure {
        match cause {
            Some(FailureCause::Chaos) => {
                useless.push(format!("{words}; give it what it lacks, or use another machine"));
            }
            Some(FailureCause::Forgot) => broken.push(words.clone()),
            None if starved && evidence.rounds.is_empty() => {
                let rate = in_load("rate_rps");
                useless.push(format!("I8, on a machine without time for it: {words}; give it cores, or lower {rate}"));
            }
            None => broken.push(format!("I8: {words}")),
        }
    }
    if let Some(why) = &evidence.load_failure {
        useless.push(format!("{why}; the rate is {}", in_load("rate_rps")));
    }
    if evidence.load_failure.is_none() && !starved {
        evidence.rounds.iter().for_each(|round| judge_round(round, promise, &mut broken));
    }
    if *missing > 0 {
        useless.push(format!("{missing} records of the backends' journals are missing: give their disk room, and the run a core; `--keep` keeps them"));
    }
    if *ran == 0 {
        useless.push(format!("no batch is in the backends' journals; raise {}, or `--repeat`", in_load("rate_rps")));
    }
    useless.extend(
        evidence
            .idle
            .iter()
            .map(|work| format!("no {work} was ever answered; give the run a core, or `--timing relaxed`")),
    );
    if promise.obeyed_ms.is_some() && evidence.rounds.iter().all(|round| round.obeyed_ms.is_none()) {
        useless.push("no leader was cut off from a quorum; use another `--seed` or more `--repeat`".into());
    }
    if !evidence.faults.iter().any(|fault| fault.state == FaultState::Installed) {
        let of_each = |fault: &Fault| Some(format!("{}: {}", fault.kind, fault.why.as_deref()?));
        let whys: Vec<_> = evidence.faults.iter().filter_map(of_each).collect();
        let whys = named(&whys);
        useless.push(format!("no fault was installed{whys}; use another `--seed` or machine, or more `--repeat`"));
    }
    if accepted == 0 || in_time == 0 {
        useless.push(format!(
            "{accepted} requests were accepted, {in_time} answered in time; nothing was at stake: raise {}, or give it a core",
            in_load("rate_rps")
        ));
    }
    match (broken.is_empty(), useless.is_empty()) {
        (true, true) => (Outcome::Pass, Vec::new()),
        (false, _) => (Outcome::Violation, broken.into_iter().chain(useless).collect()),
        (true, false) => (Outcome::Harness, useless),
    }
}

fn judge_round(round: &RoundReport, promise: &Promise, broken: &mut Vec<String>) {
    let struck: Vec<_> =
        [&round.victims, &round.struck].into_iter().filter(|names| !names.is_empty()).map(|n| n.join(", ")).collect();
    let struck = if struck.is_empty() { String::new() } else { format!(" (struck: {})", struck.join("; ")) };
    let mut find = |words: String| broken.push(format!("round {}: {words}{struck}", round.round));
    let mut at_most = |what: &str, measured: Option<f64>, promised: Option<f64>| {
        let Some(promised) = promised else { return };
        match measured {
            Some(measured) if measured <= promised => {}
            Some(measured) => find(format!("{what} {measured:.0} ms; promised are {promised:.0} ms")),
            None => find(format!("{what} never; promised are {promised:.0} ms")),
        }
    };
    at_most("no good answer for", Some(round.dispatch_gap_ms), promise.dispatch_gap_ms);
    if round.elsewhere_gap_ms.is_some() {
        at_most("no good answer elsewhere for", round.elsewhere_gap_ms, promise.elsewhere_gap_ms);
    }
    if round.commit_gap_ms.is_some() {
        at_most("no commit for", round.commit_gap_ms, promise.commit_gap_ms);
    }
    if round.obeyed_ms.is_some() {
        at_most("I2: a leader without a quorum was obeyed for", round.obeyed_ms, promise.obeyed_ms);
    }
    at_most("the view called the backends that were struck down after", round.down_after_ms, promise.down_ms);
    at_most("I8: serving again after", round.serving_after_ms, promise.serving_ms);
    let missing = round.missing_last.as_ref().map_or_else(String::new, |missing| format!(" (last missing: {missing})"));
    at_most(&format!("I8: whole again{missing} after"), round.whole_after_ms, promise.whole_ms);
    if let Some(promised) = promise.bad_after_max.filter(|promised| round.bad_after > *promised) {
        let (bad, ends) = (round.bad_after, counted(&round.bad_after_for));
        find(format!("{bad} requests not answered in time after the end ({ends}); promised are {promised}"));
    }
    if let Some(promised) = promise.serves_on_ms.filter(|promised| round.served_on_ms < *promised) {
        find(format!("served on for {:.0} ms; promised are {promised:.0} ms", round.served_on_ms));
    }
}

#[cfg(test)]
mod tests {
    use symphony_load::Verdict;

    use super::*;

    const PROMISE: Promise = Promise {
        dispatch_gap_ms: Some(1000.0),
        elsewhere_gap_ms: Some(100.0),
        commit_gap_ms: Some(500.0),
        serving_ms: Some(1000.0),
        whole_ms: Some(2000.0),
        obeyed_ms: Some(1250.0),
        down_ms: Some(3000.0),
        bad_after_max: Some(2),
        serves_on_ms: Some(50.0),
        failed_max: Some(1),
    };

    struct Scene {
        faults: Vec<Fault>,
        round: RoundReport,
        /// How many there were.
        rounds: usize,
        ledger: Ledger,
        failed_for: BTreeMap<&'static str, u64>,
        unanswered: Vec<String>,
        asked_again_unstruck: Vec<String>,
        foreign: u64,
        invariant_violations: Vec<(String, u64)>,
        executions: Executions,
        idle: Vec<&'static str>,
        writes_lost: Vec<String>,
        findings: Vec<String>,
        story: Story,
        run_failure: Option<RunFailure>,
        load_failure: Option<String>,
        calm: (u64, u64),
        times: Times,
    }

    fn broken(cause: Option<FailureCause>, words: &str) -> Option<RunFailure> {
        Some(RunFailure { cause, words: words.into() })
    }

    fn judged(change: impl FnOnce(&mut Scene)) -> (Outcome, String) {
        let (outcome, reasons) = reasons_of(change);
        (outcome, reasons.join("; "))
    }

    fn reasons_of(change: impl FnOnce(&mut Scene)) -> (Outcome, Vec<String>) {
        let fault = Fault { kind: "kill", state: FaultState::Installed, who: vec![], round: 1, how: None, why: None };
        let mut scene = Scene {
            faults: vec![fault],
            round: RoundReport {
                round: 1,
                victims: vec!["n1".into()],
                struck: vec!["a".into(), "b".into()],
                dispatch_gap_ms: 150.0,
                elsewhere_gap_ms: Some(20.0),
                commit_gap_ms: Some(100.0),
                served_on_ms: 100.0,
                obeyed_ms: Some(1000.0),
                down_after_ms: Some(2000.0),
                bad_after: 2,
                serving_after_ms: Some(100.0),
                whole_after_ms: Some(1000.0),
                ..RoundReport::default()
            },
            rounds: 1,
            ledger: Ledger { accepted: 10, in_time: 7, late: 1, dropped: 1, failed: 1, ..Ledger::default() },
            failed_for: BTreeMap::from([("no_answer", 1)]),
            unanswered: vec![],
            asked_again_unstruck: vec![],
            foreign: 0,
            invariant_violations: vec![],
            executions: Executions { ran: 5, accepted: 5, ..Executions::default() },
            idle: vec![],
            writes_lost: vec![],
            findings: vec![],
            story: Story::default(),
            run_failure: None,
            load_failure: None,
            calm: (4, 3),
            times: Times::Judged,
        };
        change(&mut scene);
        let rounds = [scene.round];
        let rounds = &rounds[..scene.rounds];
        let evidence = Evidence {
            scenario: "overlap",
            faults: &scene.faults,
            rounds,
            ledger: scene.ledger,
            failed_for: scene.failed_for,
            unanswered: scene.unanswered,
            asked_again_unstruck: scene.asked_again_unstruck,
            answered_twice_of: vec!["second 3".into()],
            foreign: scene.foreign,
            foreign_of: vec!["first 4".into()],
            invariant_violations: &scene.invariant_violations,
            executions: &scene.executions,
            idle: scene.idle,
            writes_lost: &scene.writes_lost,
            findings: &scene.findings,
            story: &scene.story,
            run_failure: scene.run_failure.as_ref(),
            calm: scene.calm,
            times: scene.times,
            load_failure: scene.load_failure,
        };
        judge(&evidence, &PROMISE)
    }

    #[test]
    fn what_keeps_the_promises_passes() {
        assert_eq!(judged(|_| {}), (Outcome::Pass, String::new()));
        let all_struck = judged(|s| (s.round.elsewhere_gap_ms, s.round.commit_gap_ms) = (None, None));
        assert_eq!(all_struck.0, Outcome::Pass, "what there is none of is not judged");
    }

    #[test]
    fn each_planted_violation_is_found() {
        type Plant = fn(&mut Scene);
        let plants: [(&str, Plant); 32] = [
            ("I4: no place is left", |s| s.story.contradiction = Some("no place is left".into())),
            ("I3: 2 requests have no outcome", |s| s.ledger.lost = 2),
            ("I3: 4 requests have no outcome (a; b; c; and others)", |s| {
                s.ledger.lost = 4;
                s.unanswered = ["a", "b", "c", "d"].map(String::from).into();
            }),
            ("I3: 1 requests have no outcome", |s| s.ledger.in_time -= 1),
            ("I3: 3 requests ended twice (second 3)", |s| s.ledger.answered_twice = 3),
            ("I3: 1 requests ended twice", |s| s.ledger.late += 1),
            ("I3: 1 requests went to a second frontend, since the first was gone or drained, and no", |s| {
                s.asked_again_unstruck = vec!["a".into()];
            }),
            ("fault had struck one (a; b)", |s| s.asked_again_unstruck = vec!["a".into(), "b".into()]),
            ("I3: 4 answers belonged to other requests (first 4)", |s| s.foreign = 4),
            ("counted 5 violations of invariants (frontend f1 2; scheduler n2 3)", |s| {
                s.invariant_violations = vec![("frontend f1".into(), 2), ("scheduler n2".into(), 3)];
            }),
            ("1 stale tokens accepted", |s| s.executions.stale = 1),
            ("2 overlapping batches", |s| s.executions.overlapping = 2),
            ("1 orders under a disputed token", |s| s.executions.disputed = 1),
            ("I6: 1 acknowledged writes are gone (write-1: 6 was acknowledged, 5 is held)", |s| {
                s.writes_lost = vec!["write-1: 6 was acknowledged, 5 is held".into()];
            }),
            ("I5: they differ", |s| s.findings = vec!["I5: they differ".into()]),
            ("I8: it did not heal", |s| s.run_failure = broken(None, "it did not heal")),
            ("forgot: n2 runs on", |s| {
                s.run_failure = broken(Some(FailureCause::Forgot), "round 1: forgot: n2 runs on");
            }),
            ("round 1: no good answer for 1001 ms; promised are 1000 ms (struck: n1; a, b)", |s| {
                s.round.dispatch_gap_ms = 1001.0;
            }),
            ("no good answer elsewhere for 101 ms", |s| s.round.elsewhere_gap_ms = Some(101.0)),
            ("no commit for 501 ms", |s| s.round.commit_gap_ms = Some(501.0)),
            ("I8: serving again after never", |s| s.round.serving_after_ms = None),
            ("I8: serving again after 1001 ms", |s| s.round.serving_after_ms = Some(1001.0)),
            ("I8: whole again after 2001 ms", |s| s.round.whole_after_ms = Some(2001.0)),
            ("I8: whole again (last missing: n1 is not up) after never; promised are 2000 ms (struck", |s| {
                (s.round.whole_after_ms, s.round.missing_last) = (None, Some("n1 is not up".into()));
            }),
            ("I2: a leader without a quorum was obeyed for 1251 ms", |s| s.round.obeyed_ms = Some(1251.0)),
            ("I7: they do not fit", |s| s.findings = vec!["I7: they do not fit".into()]),
            ("2 requests failed (no_answer 1, payload_lost 1); promised are 1", |s| {
                s.failed_for = [("no_answer", 1), ("payload_lost", 1)].into();
            }),
            ("struck down after 3001 ms", |s| s.round.down_after_ms = Some(3001.0)),
            ("struck down after never", |s| s.round.down_after_ms = None),
            ("3 requests not answered in time after the end (late 1, payload_lost 2); promised are 2 (struck", |s| {
                (s.round.bad_after, s.round.bad_after_for) = (3, [("late", 1), ("payload_lost", 2)].into());
            }),
            ("served on for 49 ms; promised are 50 ms (struck: n1; a, b)", |s| s.round.served_on_ms = 49.0),
            ("lagged", |s| (s.ledger.lost, s.load_failure) = (1, Some("the generator lagged".into()))),
        ];
        for (reason, plant) in plants {
            let (outcome, reasons) = judged(plant);
            assert_eq!(outcome, Outcome::Violation, "{reason}");
            assert!(reasons.contains(reason), "{reasons}");
        }
        let (_, reasons) = judged(|s| (s.round.victims, s.round.struck, s.round.served_on_ms) = (vec![], vec![], 49.0));
        assert_eq!(reasons, "round 1: served on for 49 ms; promised are 50 ms", "nobody was struck");
        let (_, reasons) =
            judged(|s| s.run_failure = broken(Some(FailureCause::Forgot), "round 1: forgot: n2 runs on"));
        assert_eq!(reasons, "round 1: forgot: n2 runs on", "that is no I8");
    }

    #[test]
    fn runs_that_prove_nothing_are_failures_of_the_harness_and_say_what_to_change() {
        type Plant = fn(&mut Scene);
        let plants: [(&str, Plant); 13] = [
            ("no leader was cut off", |s| s.round.obeyed_ms = None),
            ("no write was ever answered", |s| s.idle = vec!["write"]),
            ("lower `admin_clients` of `[load]` in chaos/scenarios/overlap.toml (and build again)", |s| {
                s.story.undecided = Some("too many steps".into());
            }),
            ("no fault was installed (kill: no process has the role)", |s| {
                (s.faults[0].state, s.faults[0].why) = (FaultState::Skipped, Some("no process has the role".into()));
            }),
            ("no fault was installed", |s| s.faults[0].state = FaultState::Indeterminate),
            ("nothing was at stake", |s| s.ledger = Ledger::default()),
            ("3 records of the backends' journals are missing", |s| s.executions.missing = 3),
            ("no batch is in", |s| s.executions.ran = 0),
            ("too small for the scenario", |s| s.calm = (4, 1)),
            ("chaos itself failed: no room", |s| {
                s.run_failure = broken(Some(FailureCause::Chaos), "round 1: chaos itself failed: no room");
            }),
            ("I8, on a machine without time for it: not whole", |s| {
                (s.rounds, s.calm, s.times) = (0, (4, 1), Times::Reported);
                s.run_failure = broken(None, "not whole");
            }),
            // The same gap under a lagging generator proves nothing.
            ("the generator lagged", |s| {
                let lagged = Verdict::Lagged { p99_ms: 53.0, p99_allowed_ms: 50.0, max_ms: 60.0, max_allowed_ms: 1e3 };
                (s.round.dispatch_gap_ms, s.load_failure) = (5000.0, Some(lagged.to_string()));
            }),
            ("3 requests were withheld", |s| s.load_failure = Some(Verdict::Overran { withheld: 3 }.to_string())),
        ];
        for (reason, plant) in plants {
            let (outcome, reasons) = reasons_of(plant);
            assert_eq!(outcome, Outcome::Harness, "{reason}");
            assert!(reasons.iter().any(|said| said.contains(reason)), "{reasons:?}");
            for said in reasons {
                // What a verdict of the generator advises counts, not what is added to it about files.
                let said = said.split("; the rate is ").next().unwrap();
                let advises = ["give ", "raise ", "lower ", "another "].iter().any(|advice| said.contains(advice));
                assert!(advises, "no advice: {said}");
            }
        }
    }

    #[test]
    fn a_machine_that_is_too_small_without_any_fault_says_nothing_of_times() {
        let whole = |calm| judged(|s| (s.rounds, s.run_failure, s.calm) = (0, broken(None, "not whole"), calm)).0;
        assert_eq!(whole((4, 1)), Outcome::Harness);
        assert_eq!(whole((4, 2)), Outcome::Violation);
        let slow = |calm| judged(|s| (s.round.whole_after_ms, s.calm) = (None, calm)).0;
        assert_eq!(slow((4, 1)), Outcome::Harness);
        assert_eq!(slow((4, 2)), Outcome::Violation);
        assert_eq!(judged(|s| (s.ledger.lost, s.calm) = (1, (4, 1))).0, Outcome::Violation, "what was seen was seen");
        assert_eq!(judged(|s| (s.times, s.calm) = (Times::Reported, (4, 1))).0, Outcome::Pass, "of times alone");
    }

    #[test]
    fn as_many_requests_may_fail_as_are_promised_and_no_more() {
        assert_eq!(judged(|s| s.failed_for = [("no_answer", 1)].into()).0, Outcome::Pass);
        let (outcome, reasons) = judged(|s| s.failed_for = [("no_answer", 1), ("payload_lost", 1)].into());
        assert!(
            outcome == Outcome::Violation
                && reasons.contains("2 requests failed (no_answer 1, payload_lost 1); promised are 1"),
            "{reasons}"
        );
    }
}
