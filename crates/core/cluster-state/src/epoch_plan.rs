//! Plans and moves as data: which models and backends move where, at what cost, and how far they are. The rules are in
//! `epoch_plans.rs` and `moves.rs`.

use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{BackendId, Epoch, ModelId, SubclusterId};

/// The plan of an epoch: the moves from the present cluster to the computed one.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct EpochPlan {
    /// Log index at which it was proposed; identifies it.
    pub id: u64,
    /// Why it was made, for display: `rates changed by 31 %`.
    pub cause: String,
    /// What it achieves, for display: the imbalance before and after, and the cost of the moves.
    pub summary: String,
    /// Every model and backend that changes its sub-cluster, in the order of the proposal.
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
    /// The model that stays where it is.
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
    /// A model with its copies on all GPUs of its sub-cluster.
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
    /// What moves, from where, and to where.
    pub wanted: WantedMove,
    /// Its cost, as estimated when the plan was proposed.
    pub cost: MoveCost,
    /// How far it has come.
    pub progress: MoveProgress,
}

/// How far a move has come.
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

/// The result of the epoch loop.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanProposal {
    /// The epoch that it was computed from: in another epoch it is outdated, and it runs only if no other plan does. 0
    /// to skip both checks.
    pub epoch: Epoch,
    /// Why it was made, for display.
    pub cause: String,
    /// What it achieves, for display.
    pub summary: String,
    /// What is to move; at most [`PLAN_MOVES_MAX`](crate::PLAN_MOVES_MAX).
    pub moves: Vec<WantedMove>,
    /// Models that fit nowhere and stay where they are. A plan without moves only names these.
    pub left_alone: Vec<LeftAlone>,
    /// Assumed loading speed of backends without measurements, in bytes per second; 0 if unknown.
    pub load_bytes_per_s: u64,
    /// Whether it runs at once or waits for an operator's approval.
    pub adopt: bool,
}

/// What moves cost: how much is loaded, and how much on the most loaded backend.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveCost {
    /// Bytes of models to load, over all GPUs.
    pub bytes: u64,
    /// The largest amount that one backend loads.
    pub backend_bytes: u64,
    /// The longest loading time of one backend in milliseconds, by its measured speed; 0 if that is unknown.
    pub backend_ms: u64,
    /// The largest amount of additional memory on one GPU.
    pub gpu_bytes: u64,
}

/// A move of a model to another sub-cluster.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelMove {
    /// The old sub-cluster.
    pub from: SubclusterId,
    /// The new sub-cluster.
    pub to: SubclusterId,
    /// Log index at which the move began; identifies it.
    pub since: u64,
    /// Log index from which on new requests go to `to`; `None` while the backends there load the model.
    pub switched: Option<u64>,
}

/// A move of a backend with its GPUs to another sub-cluster.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendMove {
    /// The new sub-cluster.
    pub to: SubclusterId,
    /// Log index at which the move began; identifies it.
    pub since: u64,
    /// Whether it loads the models of the new sub-cluster beside those of the old one. If memory is too small for both,
    /// it loads them after the move; meanwhile the old sub-cluster continues with its remaining GPUs.
    pub preloads: bool,
    /// Log index from which on it gets no more plans; `None` while it loads.
    pub retiring: Option<u64>,
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
