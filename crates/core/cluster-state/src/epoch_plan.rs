//! Plans: which models and backends move where, and the progress of the moves.

use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{BackendId, Epoch, ModelId, SubclusterId};

use crate::command::PlanProposal;
use crate::cost::MoveCost;
use crate::effect::Effect;
use crate::limits::PLANS_KEPT;
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::state::ClusterState;

/// The plan of an epoch: the moves from the present cluster to the computed one.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct EpochPlan {
    /// Log index at which it was proposed; identifies it.
    pub id: u64,
    /// Why it was made, for display: `rates changed by 31 %`.
    pub cause: String,
    /// What it achieves, for display: the imbalance before and after, and the cost of the moves.
    pub summary: String,
    /// Its moves.
    pub moves: Vec<PlannedMove>,
    /// Total cost of its moves: bytes and time of the backend, and bytes of the GPU, with the largest share.
    pub cost: MoveCost,
    /// Models that fit nowhere and stay where they are.
    pub left_alone: Vec<LeftAlone>,
    /// Its state.
    pub status: PlanStatus,
}

/// A model that fits into no sub-cluster and is left out of plans.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct LeftAlone {
    /// The model.
    pub model: ModelId,
    /// Why, for display.
    pub reason: String,
}

/// The state of a plan.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanStatus {
    /// Waiting for an operator's approval.
    Proposed,
    /// Its moves are under way or wait for memory.
    Running,
    /// Every move has completed or was cancelled.
    Done,
    /// It never ran: replaced by a newer plan, or refused by an operator.
    Dropped,
}

/// The subject of a move.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moved {
    /// A model.
    Model(ModelId),
    /// A backend with its GPUs.
    Backend(BackendId),
}

/// A move as the plan has it.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedMove {
    /// The subject.
    pub what: Moved,
    /// The old sub-cluster: if the subject has left it since, the move is skipped.
    pub from: SubclusterId,
    /// The new sub-cluster.
    pub to: SubclusterId,
}

/// A move of a plan, with its progress.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    /// The move.
    pub wanted: WantedMove,
    /// Its cost, as estimated when the plan was proposed.
    pub cost: MoveCost,
    /// Its progress.
    pub progress: MoveProgress,
}

/// The progress of a move.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum MoveProgress {
    /// Not begun: memory is too small for two copies now, or too many moves are under way.
    Waiting,
    /// Begun at this log index.
    UnderWay(u64),
    /// Completed at this log index.
    Done(u64),
    /// Cancelled for this reason. The subject is where it was.
    GivenUp(String),
}

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

impl EpochPlan {
    /// Whether all its moves have ended.
    pub(crate) fn is_over(&self) -> bool {
        let over = |m: &PlannedMove| matches!(m.progress, MoveProgress::Done(_) | MoveProgress::GivenUp(_));
        self.moves.iter().all(over)
    }
}

impl MoveProgress {
    /// The log index at which it began, while it is under way.
    #[must_use]
    pub const fn under_way_since(&self) -> Option<u64> {
        match self {
            Self::UnderWay(since) => Some(*since),
            Self::Waiting | Self::Done(_) | Self::GivenUp(_) => None,
        }
    }
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(id) => write!(f, "model {id}"),
            Self::Backend(id) => write!(f, "backend {id}"),
        }
    }
}

impl fmt::Display for WantedMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {} to {}", self.what, self.from, self.to)
    }
}
