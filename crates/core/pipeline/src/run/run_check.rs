//! Invariants P1 to P3, judged from what goes into a run and what comes out of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use symphony_types::{Invariant, Time};

use super::action::{Action, AskId, Event};
use super::run_plan::RunPlan;

/// A step that violates an invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{invariant}: {detail}")]
pub struct Violation {
    /// The violated invariant.
    pub invariant: Invariant,
    /// The values that violate it.
    pub detail: String,
}

/// Follows one run.
#[derive(Clone, Debug)]
pub struct RunCheck {
    plan: Arc<RunPlan>,
    deadline: Time,
    open: BTreeSet<AskId>,
    has_ended: bool,
}

impl RunCheck {
    /// For a run that has this plan and deadline.
    #[must_use]
    pub fn new(plan: Arc<RunPlan>, deadline: Time) -> Self {
        Self { plan, deadline, open: BTreeSet::new(), has_ended: false }
    }

    /// Checks the actions with which a run begins.
    ///
    /// # Errors
    /// As [`RunCheck::stepped`].
    pub fn began(&mut self, actions: &[Action]) -> Result<(), Violation> {
        actions.iter().try_for_each(|action| self.acted(action))
    }

    /// Checks a step: the event, whether the run took it, and its actions.
    ///
    /// # Errors
    /// If a result is used that is not awaited (P3), a stage is asked beyond what leaves those behind it their least
    /// time (P2), or a stage request outlives the request or comes after its end (P1).
    pub fn stepped(&mut self, event: &Event<'_>, is_taken: bool, actions: &[Action]) -> Result<(), Violation> {
        let ended = match event {
            Event::StageDone { ask, .. } | Event::StageEnded { ask, .. } if is_taken => Some(*ask),
            _ => None,
        };
        if let Some(ask) = ended.filter(|ask| !self.open.remove(ask)) {
            return violated(Invariant::P3, format!("the end of {ask} is used, which is not awaited"));
        }
        actions.iter().try_for_each(|action| self.acted(action))
    }

    fn acted(&mut self, action: &Action) -> Result<(), Violation> {
        if self.has_ended {
            return violated(Invariant::P1, format!("{action:?} after the request's end"));
        }
        match *action {
            Action::Ask(ask) => {
                let latest = self.plan.latest(ask.stage, self.deadline);
                if latest.is_none_or(|latest| ask.deadline > latest) {
                    let latest = latest.map_or_else(|| "an unknown stage".to_owned(), |latest| format!("{latest}"));
                    let detail = format!("stage {} is asked by {}; the latest is {latest}", ask.stage, ask.deadline);
                    return violated(Invariant::P2, detail);
                }
                for id in ask.ids() {
                    if !self.open.insert(id) {
                        return violated(Invariant::P3, format!("{id} is asked twice"));
                    }
                }
            }
            Action::Withdraw(ask) => {
                self.open.remove(&ask);
            }
            Action::End { outcome, .. } => {
                self.has_ended = true;
                if let Some(ask) = self.open.first() {
                    let detail = format!("{ask} and {} others are open at the end ({outcome:?})", self.open.len() - 1);
                    return violated(Invariant::P1, detail);
                }
            }
        }
        Ok(())
    }
}

fn violated(invariant: Invariant, detail: String) -> Result<(), Violation> {
    Err(Violation { invariant, detail })
}

#[cfg(test)]
mod tests;
