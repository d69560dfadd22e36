//! Plans: how they are proposed, approved and replaced.

use symphony_types::Epoch;

use crate::effect::Effect;
use crate::epoch_plan::{EpochPlan, MoveProgress, PlanProposal, PlanStatus, PlannedMove};
use crate::limits::PLANS_KEPT;
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::state::ClusterState;

impl ClusterState {
    pub(crate) fn propose_plan(&mut self, index: u64, proposal: &PlanProposal, effects: &mut Vec<Effect>) -> Outcome {
        if proposal.epoch != Epoch::default() && proposal.epoch != self.epoch {
            return Err(Refusal::PlanOutdated { planned: proposal.epoch, current: self.epoch });
        }
        let running = |plan: &&EpochPlan| plan.status == PlanStatus::Running;
        if self.plans.iter().filter(running).count() >= PLANS_KEPT {
            return Err(Refusal::Limit { what: "plans that run".into(), max: PLANS_KEPT as u64 });
        }
        // The plan was computed before an operator approved another one, which it would end before its start.
        if proposal.epoch != Epoch::default() && proposal.adopt && self.plans.iter().any(|plan| running(&plan)) {
            let reason = "another plan runs by now; expected none beside one that was made for an epoch".into();
            return Err(Refusal::Invalid { field: "adopt".into(), reason });
        }
        self.drop_proposed(effects);
        if proposal.adopt {
            self.give_up_waiting(effects);
        }
        let (costs, cost) = self.costs_of(&proposal.moves, proposal.load_bytes_per_s);
        let moves = proposal.moves.iter().zip(costs);
        let plan = EpochPlan {
            id: index,
            cause: proposal.cause.clone(),
            summary: proposal.summary.clone(),
            moves: moves.map(|(&wanted, cost)| PlannedMove { wanted, cost, progress: MoveProgress::Waiting }).collect(),
            cost,
            left_alone: proposal.left_alone.clone(),
            status: if proposal.adopt { PlanStatus::Running } else { PlanStatus::Proposed },
        };
        let (cause, moves) = (plan.cause.clone(), plan.moves.len() as u64);
        effects.push(Effect::PlanProposed { plan: index, cause, moves });
        if proposal.adopt {
            effects.push(Effect::PlanAdopted { plan: index });
        }
        self.plans.push(plan);
        // A running plan is kept: its moves are under way.
        if self.plans.len() > PLANS_KEPT
            && let Some(oldest) = self.plans.iter().position(|plan| plan.status != PlanStatus::Running)
        {
            self.plans.remove(oldest);
        }
        Ok(Reply::Plan { plan: index })
    }

    pub(crate) fn review_plan(&mut self, id: u64, approve: bool, effects: &mut Vec<Effect>) -> Outcome {
        let waits = |plan: &EpochPlan| plan.id == id && plan.status == PlanStatus::Proposed;
        let place = self.plans.iter().position(waits);
        let place = place.ok_or(Refusal::NoSuchPlan { plan: id })?;
        if approve {
            self.give_up_waiting(effects);
        }
        self.plans[place].status = if approve { PlanStatus::Running } else { PlanStatus::Dropped };
        effects.push(if approve { Effect::PlanAdopted { plan: id } } else { Effect::PlanDropped { plan: id } });
        Ok(Reply::Done)
    }

    /// Another plan is proposed: waiting ones are outdated.
    fn drop_proposed(&mut self, effects: &mut Vec<Effect>) {
        for plan in self.plans.iter_mut().filter(|plan| plan.status == PlanStatus::Proposed) {
            plan.status = PlanStatus::Dropped;
            effects.push(Effect::PlanDropped { plan: plan.id });
        }
    }

    /// Another plan runs: moves of earlier plans that have not begun are cancelled.
    fn give_up_waiting(&mut self, effects: &mut Vec<Effect>) {
        let running = self.plans.iter_mut().filter(|plan| plan.status == PlanStatus::Running);
        for planned in running.flat_map(|plan| &mut plan.moves).filter(|m| m.progress == MoveProgress::Waiting) {
            let reason = "a younger plan took its place".to_owned();
            effects.push(Effect::MoveGivenUp { wanted: planned.wanted, reason: reason.clone() });
            planned.progress = MoveProgress::GivenUp(reason);
        }
    }
}
