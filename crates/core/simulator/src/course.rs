//! What became of a cluster whose number of GPUs followed the load.

use serde::Serialize;
use symphony_controllers::Reason;

/// GPUs over the counted time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ScalingResult {
    /// GPUs that were there in the mean, draining ones included.
    pub gpus_mean: f64,
    /// The fewest and the most that were there when the autoscaler looked; `None` if it never did.
    pub gpus_range: Option<(u32, u32)>,
    /// How often GPUs were ordered.
    pub ups: u64,
    /// How often GPUs were given back.
    pub downs: u64,
    /// Every look of the autoscaler, from the beginning of the run.
    #[serde(skip)]
    pub course: Vec<CourseStep>,
}

/// One look of the autoscaler at the time since the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct CourseStep {
    /// Its end, in seconds from the beginning of the run.
    pub at_s: f64,
    /// Requests by model, in the order of the scenario.
    pub models: Vec<ModelCounts>,
    /// GPUs that took plans, in the mean.
    pub serving: f64,
    /// And those of them that executed.
    pub busy: f64,
    /// GPUs on order, before the advice.
    pub ordered: u32,
    /// GPUs that drained, before the advice.
    pub draining: u32,
    /// What the law asks for before damping; see [`symphony_controllers::Advice::pressure`].
    pub pressure: f64,
    /// GPUs to order.
    pub add: u32,
    /// GPUs and orders to give back.
    pub release: u32,
    /// Why.
    pub reason: Reason,
}

/// Requests of a model in one step. Those that arrive may end in a later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelCounts {
    /// Arrived.
    pub offered: u32,
    /// Answered in time.
    pub good: u32,
    /// Dropped, or answered late.
    pub bad: u32,
}

impl CourseStep {
    /// Requests of all models.
    #[must_use]
    pub fn total(&self) -> ModelCounts {
        self.models.iter().fold(ModelCounts::default(), |sum, model| ModelCounts {
            offered: sum.offered + model.offered,
            good: sum.good + model.good,
            bad: sum.bad + model.bad,
        })
    }
}
