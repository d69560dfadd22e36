//! Moves that began together, and their progress, which operators see as plans.

use crate::limits::PLANS_KEPT;
use crate::state::{Cause, FederatedPlan, FederationState, PlannedMove, Progress};

impl FederationState {
    /// Records the moves that begin with this entry.
    pub(crate) fn remember_plan(&mut self, index: u64, cause: Cause, moves: Vec<PlannedMove>) {
        self.plans.push_back(FederatedPlan { id: index, cause, moves });
        let surplus = self.plans.len().saturating_sub(PLANS_KEPT);
        self.plans.drain(..surplus);
    }

    /// Records the result of a model's move that began with entry `since`; ignored if its plan is forgotten.
    pub(crate) fn remember_end(&mut self, model: &str, since: u64, progress: Progress) {
        let plan = self.plans.iter_mut().find(|plan| plan.id == since);
        if let Some(planned) = plan.and_then(|plan| plan.moves.iter_mut().find(|planned| planned.model == model)) {
            planned.progress = progress;
        }
    }
}
