//! Which stages lie on paths between which: dominators, and what each join waits for.

use crate::pipeline::Pipeline;

/// A set of stages, by index; a pipeline has at most 32.
type Stages = u64;

/// The forks and joins that a stage is part of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ForksAndJoins {
    /// The stage where the branches begin that meet here; only joins have one.
    pub(crate) fork: Option<usize>,
    /// The joins whose branches begin here, inner ones first.
    pub(crate) forks: Vec<usize>,
    /// The joins that wait for this stage, inner ones first.
    pub(crate) awaited_by: Vec<usize>,
}

/// For all stages.
pub(crate) fn forks_and_joins(pipeline: &Pipeline) -> Vec<ForksAndJoins> {
    let count = pipeline.stages().len();
    let has = |set: Stages, stage: usize| (set >> stage) & 1 == 1;
    let parents = |stage: usize| pipeline.edges().iter().filter(move |edge| edge.to == stage).map(|edge| edge.from);
    // Stages on some path into a stage, and on all of them; both with the stage itself.
    let mut before: Vec<Stages> = vec![0; count];
    let mut on_all: Vec<Stages> = vec![0; count];
    for &stage in pipeline.order() {
        before[stage] = parents(stage).fold(1 << stage, |all: Stages, parent| all | before[parent]);
        let by_all = parents(stage).map(|parent| on_all[parent]).reduce(|all, one| all & one).unwrap_or(0);
        on_all[stage] = by_all | (1 << stage);
    }
    let mut forks_and_joins = vec![ForksAndJoins::default(); count];
    // Joins by the number of stages that they wait for: of two that wait for the same stage, one is within the other.
    let mut joins: Vec<(u32, usize, usize, Stages)> = Vec::new();
    for join in (0..count).filter(|&stage| parents(stage).count() > 1) {
        let dominators = on_all[join] & !(1 << join);
        // The last one in order is the nearest. The source dominates every stage.
        let Some(&fork) = pipeline.order().iter().rev().find(|&&stage| has(dominators, stage)) else { continue };
        let between = (0..count)
            .filter(|&stage| stage != fork && stage != join && has(before[join], stage) && has(before[stage], fork))
            .fold(0, |all: Stages, stage| all | (1 << stage));
        joins.push((between.count_ones(), join, fork, between));
    }
    joins.sort_unstable();
    for (_, join, fork, between) in joins {
        forks_and_joins[join].fork = Some(fork);
        forks_and_joins[fork].forks.push(join);
        (0..count).filter(|&stage| has(between, stage)).for_each(|stage| forks_and_joins[stage].awaited_by.push(join));
    }
    forks_and_joins
}
