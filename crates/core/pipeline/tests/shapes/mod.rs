//! Random pipelines for tests: trees, and forks that join.

use symphony_pipeline::{EdgeSpec, Pipeline, PipelineSpec, Stage};
use symphony_types::{LatencyProfile, Nanos, RequestValue};

/// Random numbers from a seed: the same ones everywhere.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Below `sides`, which is positive.
    pub(crate) fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }

    /// At least 0, below 1.
    pub(crate) fn share(&mut self) -> f64 {
        self.below(1 << 20) as f64 / f64::from(1 << 20)
    }
}

/// Every stage but the first is fed by one before it.
pub(crate) fn tree(dice: &mut Dice, stages: usize) -> Vec<(usize, usize)> {
    (1..stages).map(|stage| (dice.below(stage), stage)).collect()
}

/// Begins with a chain of three stages, or fewer; every further stage is put on an edge, or beside one.
pub(crate) fn forks_and_joins(dice: &mut Dice, stages: usize) -> Vec<(usize, usize)> {
    let mut edges: Vec<_> = (1..stages.min(3)).map(|stage| (stage - 1, stage)).collect();
    for stage in 3..stages {
        let at = dice.below(edges.len());
        let (from, to) = edges[at];
        if dice.below(2) == 0 {
            edges.swap_remove(at);
        }
        edges.extend([(from, stage), (stage, to)]);
    }
    edges
}

/// A pipeline of this shape; `profile` is called for each stage.
pub(crate) fn pipeline(
    dice: &mut Dice,
    stages: usize,
    edges: &[(usize, usize)],
    slo: Nanos,
    profile: &mut dyn FnMut(&mut Dice) -> LatencyProfile,
) -> Pipeline {
    let stage = |at: usize| Stage { name: format!("s{at}"), model: format!("m{at}"), profile: profile(dice) };
    let stages = (0..stages).map(stage).collect();
    let edge = |&(from, to): &(usize, usize)| EdgeSpec {
        from: format!("s{from}"),
        to: format!("s{to}"),
        gamma: [0.1, 0.5, 1.0, 2.0, 10.0][dice.below(5)],
        per_row: true,
        condition: None,
        most: None,
    };
    let edges = edges.iter().map(edge).collect();
    let name = "random".to_owned();
    Pipeline::new(PipelineSpec { name, slo, value: RequestValue::ONE, partial: dice.below(2) == 0, stages, edges })
        .unwrap()
}
