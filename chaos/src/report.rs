//! What a run found: the words of every chaos report.

use serde::Serialize;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// Everything promised held.
    Pass,
    /// The system broke a promise.
    Violation,
    /// The run itself went wrong: it says nothing about the system.
    Harness,
}

/// What became of one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FaultState {
    /// It happened, and to whom it was meant for.
    Installed,
    /// It did not happen: there was nobody to strike.
    Skipped,
    /// It happened, but perhaps to somebody who had just lost the role.
    Indeterminate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Fault {
    pub(crate) kind: &'static str,
    pub(crate) state: FaultState,
}

/// Quantiles of a few values: nearest rank, so every figure is one that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) n: usize,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// None of nothing.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let rank = |quantile: f64| (values.len() as f64 * quantile).ceil() as usize;
        let at = |quantile| values.get(rank(quantile).saturating_sub(1)).copied();
        Some(Self { n: values.len(), p50: at(0.5)?, p99: at(0.99)?, max: *values.last()? })
    }
}

/// What became of the requests: the frontend's counts, and the client's word on lost and doubled answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Ledger {
    pub(crate) accepted: u64,
    pub(crate) in_time: u64,
    pub(crate) late: u64,
    pub(crate) dropped: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) lost: u64,
    pub(crate) answered_twice: u64,
}

/// One kill and what followed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Takeover {
    pub(crate) victim: u64,
    pub(crate) victim_led_subcluster: bool,
    pub(crate) victim_led_control_group: bool,
    /// From the kill until the view of the cluster named another leader; none if the victim led nothing there.
    pub(crate) named_after_ms: Option<f64>,
    /// The longest time without a good answer around the kill; none if too many answers came to keep.
    pub(crate) dispatch_gap_ms: Option<f64>,
    /// The same over as long a time before the kill: what the load and the machine cause by themselves.
    pub(crate) gap_before_ms: Option<f64>,
    /// From its restart until the victim was up and a standby.
    pub(crate) standby_after_ms: f64,
}

/// What a run found. Fields that this version cannot measure are null; `chaos/README.md` says why.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) scenario: String,
    pub(crate) outcome: Outcome,
    /// Why it is no pass.
    pub(crate) reasons: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) timing: symphony_config::Timing,
    pub(crate) faults: Vec<Fault>,
    pub(crate) dispatch_gap_ms: Option<Summary>,
    pub(crate) gap_before_ms: Option<Summary>,
    pub(crate) named_after_ms: Option<Summary>,
    pub(crate) commit_gap_ms: Option<Summary>,
    pub(crate) ledger: Ledger,
    pub(crate) stale_tokens_accepted: Option<u64>,
    pub(crate) overlapping_batches: Option<u64>,
    /// Violations of named invariants, as counted by the processes that were alive at the end.
    pub(crate) invariant_violations: u64,
    pub(crate) takeovers: Vec<Takeover>,
}

impl Report {
    /// For people.
    pub(crate) fn table(&self) -> String {
        let line = |what: &str, summary: Option<Summary>| match summary {
            Some(s) => {
                format!("  {what:<28} n {:>3}   p50 {:>7.1}   p99 {:>7.1}   max {:>7.1}\n", s.n, s.p50, s.p99, s.max)
            }
            None => format!("  {what:<28} not measured\n"),
        };
        let Ledger { accepted, in_time, late, dropped, failed, cancelled, lost, answered_twice } = self.ledger;
        let installed = self.faults.iter().filter(|fault| fault.state == FaultState::Installed).count();
        let mut out =
            format!("{}: {:?}, {installed} of {} faults installed\n", self.scenario, self.outcome, self.faults.len());
        out += &line("dispatch gap, ms", self.dispatch_gap_ms);
        out += &line("  before the kill, ms", self.gap_before_ms);
        out += &line("new leader named after, ms", self.named_after_ms);
        out += &line("commit gap, ms", self.commit_gap_ms);
        out += &format!(
            "  {accepted} accepted: {in_time} in time, {late} late, {dropped} dropped, {failed} failed, {cancelled} \
             cancelled; {lost} lost, {answered_twice} answered twice\n"
        );
        self.reasons.iter().for_each(|reason| out += &format!("  {reason}\n"));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        assert_eq!(Summary::of([]), None);
        assert_eq!(Summary::of([3.0]), Some(Summary { n: 1, p50: 3.0, p99: 3.0, max: 3.0 }));
        let many = Summary::of((1..=200).rev().map(f64::from)).unwrap();
        assert_eq!((many.n, many.p50, many.p99, many.max), (200, 100.0, 198.0, 200.0));
    }
}
