//! A pipeline of a scenario, with its load.

use std::sync::Arc;

use serde::Deserialize;
use symphony_pipeline::Pipeline;
use symphony_types::Nanos;

use super::fan_out::FanOut;
use crate::rate_profile::RateProfile;

/// Pipelines of one scenario: all budgets are split for each run of a search, and sixty times before it.
pub const SCENARIO_PIPELINES_MAX: usize = 256;
/// The shortest period of new splits: splitting thousands of times a second would be all that a run does.
pub(crate) const SPLIT_EPOCH_S_MIN: f64 = 1e-3;

/// How the budget of a pipeline is split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SplitRule {
    /// Fewest GPUs, a batch taking ℓ(b) + b/R of its budget: for deferred queues.
    #[default]
    Deferred,
    /// Fewest GPUs, a batch taking 2·ℓ(b) (the Nexus paper, section 4.1).
    Waiting,
    /// Fewest GPUs, a batch taking ℓ(b) (the Nexus paper, section 6.2).
    Execution,
    /// Equal shares along the longest path (the Nexus paper, section 7.2).
    Even,
}

/// A pipeline, and what arrives for it.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineLoad {
    /// Stages and edges, γ as expected. Its SLO is without `before` and `after`; profiles of its stages are those of
    /// the slowest GPU, with the delays of the network.
    pub pipeline: Pipeline,
    /// The model of each stage, by its place in the scenario.
    pub models: Vec<u32>,
    /// The latency budget of a request, from arrival to answer.
    pub slo: Nanos,
    /// From the arrival until the first stage is asked: its `pre_ms`.
    pub before: Nanos,
    /// From the last result to the answer: the longest `post_ms` of the last stages.
    pub after: Nanos,
    /// By stage, from its result until the stages behind it are asked; zero of the last ones.
    pub waits: Vec<Nanos>,
    /// The longest of these, which is planned for.
    pub hop: Nanos,
    /// How the budget is split.
    pub split: SplitRule,
    /// Whether what is left is split again at each hop.
    pub resplit: bool,
    /// Rows by edge.
    pub fan_outs: Vec<FanOut>,
    /// Its share of the total rate; all shares, of models and pipelines, add up to one.
    pub share: f64,
    /// The factor of its rate over time, if it changes.
    pub rate_profile: Option<Arc<RateProfile>>,
}
