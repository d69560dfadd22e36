//! Whether what a run saw keeps the promises.

use crate::report::{Fault, FaultState, Ledger, Outcome, Takeover};
use crate::scenario::Promise;

/// What a run saw.
#[derive(Clone, Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) faults: &'a [Fault],
    pub(crate) takeovers: &'a [Takeover],
    pub(crate) ledger: Ledger,
    /// Answers that belonged to another request.
    pub(crate) foreign: u64,
    pub(crate) invariant_violations: u64,
    /// Why the load generator's numbers are worth nothing, if so.
    pub(crate) load_failure: Option<String>,
}

/// The outcome, and why it is no pass. A violation counts even where the harness failed as well: what was seen was seen,
/// except for a gap, which a generator that lags makes by itself.
pub(crate) fn judge(evidence: &Evidence<'_>, promise: Promise) -> (Outcome, Vec<String>) {
    let (mut broken, mut useless) = (Vec::new(), Vec::new());
    let Ledger { accepted, in_time, late, dropped, failed, cancelled, lost, answered_twice } = evidence.ledger;
    let ended = in_time + late + dropped + failed + cancelled;
    if lost > 0 || ended < accepted {
        broken.push(format!("S3: {} requests have no outcome", lost.max(accepted.saturating_sub(ended))));
    }
    if answered_twice > 0 || ended > accepted {
        broken.push(format!("S3: {} requests ended twice", answered_twice.max(ended.saturating_sub(accepted))));
    }
    if evidence.foreign > 0 {
        broken.push(format!("{} answers belonged to other requests", evidence.foreign));
    }
    if evidence.invariant_violations > 0 {
        broken.push(format!("the processes counted {} violations of invariants", evidence.invariant_violations));
    }
    useless.extend(evidence.load_failure.clone());
    for (number, takeover) in (1..).zip(evidence.takeovers) {
        match takeover.dispatch_gap_ms {
            None => useless.push(format!("kill {number}: the gap is not known")),
            Some(gap) if gap > promise.dispatch_gap_max_ms && evidence.load_failure.is_none() => broken.push(format!(
                "kill {number}: no good answer for {gap:.0} ms; promised are {:.0} ms",
                promise.dispatch_gap_max_ms
            )),
            Some(_) => {}
        }
    }
    if !evidence.faults.iter().any(|fault| fault.state == FaultState::Installed) {
        useless.push("no fault was installed".into());
    }
    if accepted == 0 || in_time == 0 {
        useless.push(format!("{accepted} requests were accepted, {in_time} answered in time; nothing was at stake"));
    }
    match (broken.is_empty(), useless.is_empty()) {
        (true, true) => (Outcome::Pass, Vec::new()),
        (false, _) => (Outcome::Violation, broken.into_iter().chain(useless).collect()),
        (true, false) => (Outcome::Harness, useless),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISE: Promise = Promise { dispatch_gap_max_ms: 1000.0 };

    fn fault(state: FaultState) -> [Fault; 1] {
        [Fault { kind: "kill -9", state }]
    }

    fn takeover(gap: Option<f64>) -> [Takeover; 1] {
        [Takeover {
            victim: 1,
            victim_led_subcluster: true,
            victim_led_control_group: false,
            named_after_ms: Some(20.0),
            dispatch_gap_ms: gap,
            gap_before_ms: Some(10.0),
            standby_after_ms: 500.0,
        }]
    }

    fn judged(change: impl FnOnce(&mut Evidence<'_>)) -> (Outcome, String) {
        let ledger = Ledger { accepted: 10, in_time: 7, late: 1, dropped: 1, failed: 1, ..Ledger::default() };
        let (faults, takeovers) = (fault(FaultState::Installed), takeover(Some(150.0)));
        let mut evidence = Evidence {
            faults: &faults,
            takeovers: &takeovers,
            ledger,
            foreign: 0,
            invariant_violations: 0,
            load_failure: None,
        };
        change(&mut evidence);
        let (outcome, reasons) = judge(&evidence, PROMISE);
        (outcome, reasons.join("; "))
    }

    #[test]
    fn what_keeps_the_promises_passes() {
        assert_eq!(judged(|_| {}), (Outcome::Pass, String::new()));
    }

    #[test]
    fn each_planted_violation_is_found() {
        let slow = takeover(Some(1001.0));
        type Plant = fn(&mut Evidence<'_>);
        let plants: [(&str, Plant); 7] = [
            ("2 requests have no outcome", |e| e.ledger.lost = 2),
            ("1 requests have no outcome", |e| e.ledger.in_time -= 1),
            ("3 requests ended twice", |e| e.ledger.answered_twice = 3),
            ("1 requests ended twice", |e| e.ledger.late += 1),
            ("4 answers belonged to other", |e| e.foreign = 4),
            ("counted 5 violations", |e| e.invariant_violations = 5),
            ("lagged", |e| (e.ledger.lost, e.load_failure) = (1, Some("the generator lagged".into()))),
        ];
        for (reason, plant) in plants {
            let (outcome, reasons) = judged(plant);
            assert_eq!(outcome, Outcome::Violation, "{reason}");
            assert!(reasons.contains(reason), "{reasons}");
        }
        let (faults, ledger) = (fault(FaultState::Installed), Ledger { accepted: 1, in_time: 1, ..Ledger::default() });
        let evidence = Evidence {
            faults: &faults,
            takeovers: &slow,
            ledger,
            foreign: 0,
            invariant_violations: 0,
            load_failure: None,
        };
        let (outcome, reasons) = judge(&evidence, PROMISE);
        assert_eq!(outcome, Outcome::Violation);
        assert_eq!(reasons, ["kill 1: no good answer for 1001 ms; promised are 1000 ms"]);
        // The same gap under a generator that lagged says nothing.
        let lagged = Evidence { load_failure: Some("the generator lagged".into()), ..evidence };
        assert_eq!(judge(&lagged, PROMISE).0, Outcome::Harness);
    }

    #[test]
    fn runs_that_prove_nothing_are_failures_of_the_harness() {
        let (skipped, unknown) = (fault(FaultState::Skipped), takeover(None));
        let ledger = Ledger { accepted: 10, in_time: 10, ..Ledger::default() };
        let evidence = Evidence {
            faults: &skipped,
            takeovers: &unknown,
            ledger,
            foreign: 0,
            invariant_violations: 0,
            load_failure: None,
        };
        let (outcome, reasons) = judge(&evidence, PROMISE);
        assert_eq!(outcome, Outcome::Harness);
        assert_eq!(reasons, ["kill 1: the gap is not known", "no fault was installed"]);
        assert_eq!(judged(|e| e.ledger = Ledger::default()).0, Outcome::Harness);
    }
}
