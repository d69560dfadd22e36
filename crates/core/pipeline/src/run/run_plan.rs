//! What the runs of a pipeline share: budgets, times needed downstream, and the edges from stage to stage.

use symphony_types::{Nanos, Time};

use super::paths::{ForksAndJoins, forks_and_joins};
use crate::pipeline::Pipeline;
use crate::refused::Refused;

/// An edge out of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StageEdge {
    pub(crate) to: usize,
    pub(crate) most: u32,
    /// Its place among the edges into `to`.
    pub(crate) slot: usize,
}

/// What a run needs of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StagePlan {
    /// β: its part of the budget.
    budget: Nanos,
    /// T: the longest sum of hops and budgets behind it.
    behind: Nanos,
    /// ℓ(1): it has no answer sooner.
    least: Nanos,
    /// The longest sum of hops and ℓ(1) behind it.
    least_behind: Nanos,
    pub(crate) edges: Vec<StageEdge>,
    /// Edges into it.
    pub(crate) parents: usize,
    pub(crate) forks_and_joins: ForksAndJoins,
}

/// A pipeline with its budgets. A host makes one whenever the split changes; runs keep theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPlan {
    pub(crate) source: usize,
    pub(crate) is_partial: bool,
    pub(crate) stages: Vec<StagePlan>,
    /// Whether stages keep the deadlines of the split, instead of a part of what is left.
    is_fixed: bool,
}

impl RunPlan {
    /// With the budget of each stage, in the order of the pipeline, and the time from a stage's result to the next
    /// stage's request.
    ///
    /// # Errors
    /// If there are not as many budgets as stages.
    pub fn new(pipeline: &Pipeline, budgets: &[Nanos], hop: Nanos) -> Result<Self, Refused> {
        let count = pipeline.stages().len();
        if budgets.len() != count {
            return Err(Refused::new("stage", format!("a budget for each of {count} stages"), budgets.len()));
        }
        let mut stages: Vec<StagePlan> = forks_and_joins(pipeline)
            .into_iter()
            .zip(pipeline.stages().iter().zip(budgets))
            .map(|(forks_and_joins, (stage, &budget))| StagePlan {
                budget,
                behind: Nanos::ZERO,
                least: stage.profile.latency(1),
                least_behind: Nanos::ZERO,
                edges: Vec::new(),
                parents: 0,
                forks_and_joins,
            })
            .collect();
        for edge in pipeline.edges() {
            let slot = stages[edge.to].parents;
            stages[edge.to].parents += 1;
            stages[edge.from].edges.push(StageEdge { to: edge.to, most: edge.most, slot });
        }
        for &stage in pipeline.order().iter().rev() {
            let next = |edge: &StageEdge| &stages[edge.to];
            let edges = stages[stage].edges.iter();
            let behind = edges.clone().map(|edge| hop + next(edge).budget + next(edge).behind).max();
            let least_behind = edges.map(|edge| hop + next(edge).least + next(edge).least_behind).max();
            stages[stage].behind = behind.unwrap_or(Nanos::ZERO);
            stages[stage].least_behind = least_behind.unwrap_or(Nanos::ZERO);
        }
        let source = pipeline.order().first().copied().unwrap_or(0);
        Ok(Self { source, is_partial: pipeline.is_partial(), stages, is_fixed: false })
    }

    /// The same with stage deadlines that do not move: each is the request's, less the budgets and hops behind the
    /// stage. For comparison: what is left is not split again.
    #[must_use]
    pub fn with_fixed_deadlines(mut self) -> Self {
        self.is_fixed = true;
        self
    }

    /// What a stage that is asked at `now` gets of the time until the request's deadline D: its part of what is left,
    /// `now + (D − now)·β / (β + T)`, but what it needs at least, and not what the stages behind it need at least.
    /// `None` if both cannot be had.
    pub(crate) fn stage_deadline(&self, stage: usize, now: Time, deadline: Time) -> Option<Time> {
        let plan = &self.stages[stage];
        let (soonest, latest) = (now + plan.least, deadline - plan.least_behind);
        if soonest > latest {
            return None;
        }
        if self.is_fixed {
            return Some((deadline - plan.behind).clamp(soonest, latest));
        }
        let (part, whole) = (u128::from(plan.budget.get()), u128::from((plan.budget + plan.behind).get()));
        let left = deadline.since(now).get();
        // At most `left`, since the part is at most the whole.
        let share = (u128::from(left) * part).checked_div(whole).map_or(left, |share| share as u64);
        Some((now + Nanos::new(share)).clamp(soonest, latest))
    }

    /// What the longest path takes at least: ℓ(1) of each stage, and the hops between them.
    #[must_use]
    pub fn least(&self) -> Nanos {
        self.stages.get(self.source).map_or(Nanos::ZERO, |source| source.least + source.least_behind)
    }

    /// The latest deadline of a stage's requests that leaves the stages behind it what they need at least.
    pub(crate) fn latest(&self, stage: usize, deadline: Time) -> Option<Time> {
        self.stages.get(stage).map(|plan| deadline - plan.least_behind)
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::{LatencyProfile, RequestValue};

    use super::*;
    use crate::pipeline::{EdgeSpec, PipelineSpec, Stage};

    /// a → b → c of ℓ(1) = 2 ms each; budgets 10, 30 and 60 ms, a hop of 1 ms.
    fn chain() -> RunPlan {
        let profile = LatencyProfile::from_line(1.0, 1.0, 8).unwrap();
        let stage = |name: &str| Stage { name: name.to_owned(), model: name.to_owned(), profile: profile.clone() };
        let edge = |from: &str, to: &str| EdgeSpec {
            from: from.to_owned(),
            to: to.to_owned(),
            gamma: 1.0,
            per_row: false,
            condition: None,
            most: None,
        };
        let pipeline = Pipeline::new(PipelineSpec {
            name: "chain".to_owned(),
            slo: Nanos::from_millis(102),
            value: RequestValue::ONE,
            partial: false,
            stages: ["a", "b", "c"].map(stage).to_vec(),
            edges: vec![edge("a", "b"), edge("b", "c")],
        })
        .unwrap();
        RunPlan::new(&pipeline, &[10, 30, 60].map(Nanos::from_millis), Nanos::from_millis(1)).unwrap()
    }

    #[test]
    fn what_is_left_is_divided_as_the_budgets_are() {
        let plan = chain();
        let at = |ms| Time::ZERO + Nanos::from_millis(ms);
        // In time, every stage has its budget; behind the first one lie 1 + 30 + 1 + 60 ms.
        assert_eq!(plan.stage_deadline(0, at(0), at(102)), Some(at(10)));
        assert_eq!(plan.stage_deadline(1, at(11), at(102)), Some(at(41)));
        assert_eq!(plan.stage_deadline(2, at(42), at(102)), Some(at(102)));
        // Half an SLO, half of everything.
        assert_eq!(plan.stage_deadline(0, at(0), at(51)), Some(at(5)));
        // Late, the second stage gives up a part, not the last one all of it.
        let deadline = plan.stage_deadline(1, at(56), at(102)).unwrap();
        assert!(deadline > at(71) && deadline < at(72), "{deadline}");
    }

    #[test]
    fn fixed_deadlines_give_all_that_is_lost_to_the_stage_that_comes_late() {
        let plan = chain().with_fixed_deadlines();
        let at = |ms| Time::ZERO + Nanos::from_millis(ms);
        assert_eq!(plan.stage_deadline(0, at(0), at(102)), Some(at(10)));
        // Early or late, the second stage has until 41, or what it needs at least.
        assert_eq!(plan.stage_deadline(1, at(5), at(102)), Some(at(41)));
        assert_eq!(plan.stage_deadline(1, at(36), at(102)), Some(at(41)));
        assert_eq!(plan.stage_deadline(1, at(56), at(102)), Some(at(58)));
        assert_eq!(plan.stage_deadline(2, at(101), at(102)), None);
    }

    #[test]
    fn every_stage_is_left_what_it_needs_at_least() {
        let plan = chain();
        let at = |ms| Time::ZERO + Nanos::from_millis(ms);
        // The least is 2 + 1 + 2 + 1 + 2 ms; its tenth of 8 ms would be too little for the first stage.
        assert_eq!(plan.stage_deadline(0, at(0), at(8)), Some(at(2)));
        assert_eq!(plan.stage_deadline(0, at(0), at(7)), None);
        assert_eq!(plan.least(), Nanos::from_millis(8));
        assert_eq!(plan.stage_deadline(2, at(7), at(8)), None);
        assert_eq!((plan.latest(0, at(8)), plan.latest(3, at(8))), (Some(at(2)), None));
    }
}
