//! Partition plans and moves in views: the protobuf messages, checked and typed.

use symphony_types::{BackendId, ModelId, SubclusterId};

use crate::control as pb;
use crate::view::ViewError;

/// A model's move from one sub-cluster to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelMoveView {
    /// Where it was served before.
    pub from: SubclusterId,
    /// Where it is going.
    pub to: SubclusterId,
    /// Log index at which it began.
    pub since: u64,
    /// Log index since which new requests go to `to`; none while the backends there load it.
    pub switched: Option<u64>,
}

/// A backend's move to another sub-cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendMoveView {
    /// Where it is going.
    pub to: SubclusterId,
    /// Log index at which it began.
    pub since: u64,
    /// Whether it loads the models there before it leaves.
    pub preloads: bool,
    /// Log index since which it is given no more plans; none while it loads.
    pub retiring: Option<u64>,
}

/// A plan of the epoch loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochPlanView {
    /// Log index at which it was proposed.
    pub id: u64,
    /// How far it has come.
    pub status: PlanStatus,
    /// Why it was made.
    pub cause: String,
    /// Its benefit.
    pub summary: String,
    /// The models and backends that change their sub-clusters, and how far each is.
    pub moves: Vec<PlannedMoveView>,
    /// Their joint cost: numbers per backend and per GPU are those of the most affected one.
    pub cost: MoveCostView,
    /// Models that can be nowhere and stay where they are, and why.
    pub left_alone: Vec<(ModelId, String)>,
    /// Why it was dropped: the plan that replaced it, or the actor that refused it, as text; empty if no longer known.
    pub dropped: String,
}

impl EpochPlanView {
    /// What came of it, as a stable label for tables and JSON: that of its status, unless it is over and moves were
    /// given up.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self.status {
            PlanStatus::Done => MoveProgressView::outcome(self.moves.iter().map(|planned| &planned.progress)),
            PlanStatus::Proposed => "proposed",
            PlanStatus::Running => "running",
            PlanStatus::Dropped => "dropped",
        }
    }
}

/// What a move costs, as it looked when its plan was proposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveCostView {
    /// Bytes of models that are loaded, on all GPUs together.
    pub bytes: u64,
    /// The most that one backend loads.
    pub backend_bytes: u64,
    /// The longest load of one backend, in milliseconds, by its measured speed; 0 if that is unknown.
    pub backend_ms: u64,
    /// The largest additional memory on any one GPU.
    pub gpu_bytes: u64,
}

/// How far a plan has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanStatus {
    /// It waits for an operator's approval.
    Proposed,
    /// Its moves are under way, or wait for memory.
    Running,
    /// Every move has ended, one way or the other.
    Done,
    /// A younger plan took its place, or an operator refused it, before it ran.
    Dropped,
}

/// What a move is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovedView {
    /// A model with its copies on all GPUs of its sub-cluster.
    Model(ModelId),
    /// A backend with its GPUs.
    Backend(BackendId),
}

/// A move of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMoveView {
    /// The model or backend that moves.
    pub what: MovedView,
    /// Where it was.
    pub from: SubclusterId,
    /// Where it is to be.
    pub to: SubclusterId,
    /// What it costs, as estimated when the plan was proposed.
    pub cost: MoveCostView,
    /// How far it has come.
    pub progress: MoveProgressView,
}

/// How far a move has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveProgressView {
    /// It has not begun.
    Waiting,
    /// It began at this log index.
    UnderWay(u64),
    /// It ended at this log index.
    Done(u64),
    /// It was given up, and why.
    GivenUp(String),
}

impl MoveProgressView {
    /// The stable label, for tables and JSON.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::UnderWay(_) => "under way",
            Self::Done(_) => "done",
            Self::GivenUp(_) => "given up",
        }
    }

    /// What came of moves that have all ended.
    pub(crate) fn outcome<'a>(moves: impl ExactSizeIterator<Item = &'a Self>) -> &'static str {
        let all = moves.len();
        match moves.filter(|progress| matches!(progress, Self::GivenUp(_))).count() {
            0 => "done",
            given_up if given_up == all => "given up",
            _ => "done in part",
        }
    }

    /// From a message; none if the message is empty.
    pub(crate) fn from_message(progress: pb::MoveProgress, index: u64, reason: &str) -> Option<Self> {
        match progress {
            pb::MoveProgress::Unspecified => None,
            pb::MoveProgress::Waiting => Some(Self::Waiting),
            pb::MoveProgress::UnderWay => Some(Self::UnderWay(index)),
            pb::MoveProgress::Done => Some(Self::Done(index)),
            pb::MoveProgress::GivenUp => Some(Self::GivenUp(reason.to_owned())),
        }
    }
}

/// No index is 0: entry 0 of a log is never a command.
fn some_index(index: u64) -> Option<u64> {
    (index != 0).then_some(index)
}

impl From<pb::ModelMove> for ModelMoveView {
    fn from(moving: pb::ModelMove) -> Self {
        let (from, to) = (SubclusterId::new(moving.from), SubclusterId::new(moving.to));
        Self { from, to, since: moving.since, switched: some_index(moving.switched) }
    }
}

impl From<ModelMoveView> for pb::ModelMove {
    fn from(moving: ModelMoveView) -> Self {
        let switched = moving.switched.unwrap_or_default();
        Self { from: moving.from.get(), to: moving.to.get(), since: moving.since, switched }
    }
}

impl From<pb::BackendMove> for BackendMoveView {
    fn from(moving: pb::BackendMove) -> Self {
        let pb::BackendMove { to, since, preloads, retiring } = moving;
        Self { to: SubclusterId::new(to), since, preloads, retiring: some_index(retiring) }
    }
}

impl From<BackendMoveView> for pb::BackendMove {
    fn from(moving: BackendMoveView) -> Self {
        let BackendMoveView { to, since, preloads, retiring } = moving;
        Self { to: to.get(), since, preloads, retiring: retiring.unwrap_or_default() }
    }
}

impl From<pb::MoveCost> for MoveCostView {
    fn from(cost: pb::MoveCost) -> Self {
        let pb::MoveCost { bytes, backend_bytes, backend_ms, gpu_bytes } = cost;
        Self { bytes, backend_bytes, backend_ms, gpu_bytes }
    }
}

impl From<MoveCostView> for pb::MoveCost {
    fn from(cost: MoveCostView) -> Self {
        let MoveCostView { bytes, backend_bytes, backend_ms, gpu_bytes } = cost;
        Self { bytes, backend_bytes, backend_ms, gpu_bytes }
    }
}

impl TryFrom<pb::Plan> for EpochPlanView {
    type Error = ViewError;
    fn try_from(plan: pb::Plan) -> Result<Self, ViewError> {
        let missing = |field| ViewError::Missing { what: format!("plan {}", plan.id), field };
        let status = match plan.status() {
            pb::PlanStatus::Unspecified => return Err(missing("status")),
            pb::PlanStatus::Proposed => PlanStatus::Proposed,
            pb::PlanStatus::Running => PlanStatus::Running,
            pb::PlanStatus::Done => PlanStatus::Done,
            pb::PlanStatus::Dropped => PlanStatus::Dropped,
        };
        let moves = plan.moves.iter().map(|planned| {
            let what = match planned.what.ok_or_else(|| missing("moves.what"))? {
                pb::planned_move::What::Model(id) => MovedView::Model(ModelId::new(id)),
                pb::planned_move::What::Backend(id) => MovedView::Backend(BackendId::new(id)),
            };
            let progress = MoveProgressView::from_message(planned.progress(), planned.index, &planned.reason)
                .ok_or_else(|| missing("moves.progress"))?;
            let (from, to) = (SubclusterId::new(planned.from), SubclusterId::new(planned.to));
            let cost = planned.cost.unwrap_or_default().into();
            Ok(PlannedMoveView { what, from, to, cost, progress })
        });
        let moves = moves.collect::<Result<_, _>>()?;
        let left_alone = plan.left_alone.into_iter().map(|left| (ModelId::new(left.model), left.reason)).collect();
        let (cause, summary, cost) = (plan.cause, plan.summary, plan.cost.unwrap_or_default().into());
        Ok(Self { id: plan.id, status, cause, summary, moves, cost, left_alone, dropped: plan.dropped })
    }
}

impl From<&EpochPlanView> for pb::Plan {
    fn from(plan: &EpochPlanView) -> Self {
        let status = match plan.status {
            PlanStatus::Proposed => pb::PlanStatus::Proposed,
            PlanStatus::Running => pb::PlanStatus::Running,
            PlanStatus::Done => pb::PlanStatus::Done,
            PlanStatus::Dropped => pb::PlanStatus::Dropped,
        };
        let moves = plan.moves.iter().map(|planned| {
            let what = match planned.what {
                MovedView::Model(id) => pb::planned_move::What::Model(id.get()),
                MovedView::Backend(id) => pb::planned_move::What::Backend(id.get()),
            };
            let (progress, index, reason) = match &planned.progress {
                MoveProgressView::Waiting => (pb::MoveProgress::Waiting, 0, String::new()),
                MoveProgressView::UnderWay(index) => (pb::MoveProgress::UnderWay, *index, String::new()),
                MoveProgressView::Done(index) => (pb::MoveProgress::Done, *index, String::new()),
                MoveProgressView::GivenUp(reason) => (pb::MoveProgress::GivenUp, 0, reason.clone()),
            };
            let (from, to, progress) = (planned.from.get(), planned.to.get(), progress.into());
            let cost = Some(planned.cost.into());
            pb::PlannedMove { what: Some(what), from, to, progress, index, reason, cost }
        });
        let (cause, summary, cost) = (plan.cause.clone(), plan.summary.clone(), Some(plan.cost.into()));
        let left = plan.left_alone.iter().map(|(model, why)| pb::LeftAlone { model: model.get(), reason: why.clone() });
        let (left_alone, moves, dropped) = (left.collect(), moves.collect(), plan.dropped.clone());
        Self { id: plan.id, status: status.into(), cause, summary, moves, cost, left_alone, dropped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_comes_out_of_its_message_as_it_went_in_and_half_a_message_is_refused() {
        let cost = MoveCostView { bytes: 7, backend_bytes: 5, backend_ms: 9, gpu_bytes: 3 };
        let planned = |what, progress| PlannedMoveView {
            what,
            from: SubclusterId::new(1),
            to: SubclusterId::new(2),
            cost,
            progress,
        };
        let model = MovedView::Model(ModelId::new(3));
        let plan = EpochPlanView {
            id: 9,
            status: PlanStatus::Running,
            cause: "rates changed".into(),
            summary: "imbalance 0.4 to 0.1".into(),
            moves: vec![
                planned(model, MoveProgressView::Waiting),
                planned(MovedView::Backend(BackendId::new(4)), MoveProgressView::UnderWay(10)),
                planned(model, MoveProgressView::Done(11)),
                planned(model, MoveProgressView::GivenUp("no such file".into())),
            ],
            cost,
            left_alone: vec![(ModelId::new(5), "too slow".into())],
            dropped: "refused by ann".into(),
        };
        let message = pb::Plan::from(&plan);
        assert_eq!(EpochPlanView::try_from(message.clone()), Ok(plan));
        let without_what = |mut message: pb::Plan| {
            message.moves[0].what = None;
            message
        };
        assert!(EpochPlanView::try_from(without_what(message.clone())).is_err());
        assert!(EpochPlanView::try_from(pb::Plan { status: 0, ..message }).is_err());
    }

    #[test]
    fn a_plan_whose_moves_were_given_up_does_not_read_as_done() {
        let ended = |given_up: &[bool]| {
            let planned = |&given_up: &bool| PlannedMoveView {
                what: MovedView::Model(ModelId::new(3)),
                from: SubclusterId::new(1),
                to: SubclusterId::new(2),
                cost: MoveCostView::default(),
                progress: if given_up { MoveProgressView::GivenUp(String::new()) } else { MoveProgressView::Done(9) },
            };
            EpochPlanView {
                id: 1,
                status: PlanStatus::Done,
                cause: String::new(),
                summary: String::new(),
                moves: given_up.iter().map(planned).collect(),
                cost: MoveCostView::default(),
                left_alone: Vec::new(),
                dropped: String::new(),
            }
        };
        let labels = [&[][..], &[false], &[false, true], &[true]].map(|given_up| ended(given_up).label());
        assert_eq!(labels, ["done", "done", "done in part", "given up"]);
        assert_eq!(EpochPlanView { status: PlanStatus::Running, ..ended(&[true]) }.label(), "running");
    }
}
