//! A run with its invariants looked after while it is live.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use symphony_pipeline::{Action, AskId, Event, PipelineRun, RunCheck, RunPlan, Violation};
use symphony_types::{Invariant, Time};

/// The run of one item. What breaks an invariant is counted and logged, and serving goes on.
#[derive(Debug)]
pub(super) struct CheckedRun {
    run: PipelineRun,
    check: RunCheck,
}

impl CheckedRun {
    /// Begins the run; `actions` are its first ones.
    pub(super) fn begin(plan: &Arc<RunPlan>, now: Time, deadline: Time) -> (Self, Vec<Action>) {
        let mut actions = Vec::new();
        let run = PipelineRun::begin(Arc::clone(plan), now, deadline, &mut actions);
        let mut check = RunCheck::new(Arc::clone(plan), deadline);
        report_violation(check.began(&actions));
        (Self { run, check }, actions)
    }

    /// What is to be done after an event; none if it is no news.
    pub(super) fn step(&mut self, now: Time, event: Event<'_>) -> Option<Vec<Action>> {
        let mut actions = Vec::new();
        let is_taken = self.run.step(now, event, &mut actions);
        report_violation(self.check.stepped(&event, is_taken, &actions));
        is_taken.then_some(actions)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.run.has_ended()
    }

    /// The stage requests whose results are the input of this one.
    pub(super) fn inputs(&self, ask: AskId) -> Vec<AskId> {
        self.run.inputs(ask)
    }
}

/// Counts what was found.
pub(super) fn report_violation(judged: Result<(), Violation>) {
    if let Err(Violation { invariant, detail }) = judged {
        symphony_telemetry::violated(invariant, detail);
    }
}

/// The last check of P1: a request has ended, and this many of its stage requests are still open.
pub(super) fn report_open(open: &AtomicUsize) {
    let left = open.load(Ordering::Relaxed);
    if left > 0 {
        symphony_telemetry::violated(Invariant::P1, format_args!("{left} stage requests are open after the end"));
    }
}
