//! The course of a cluster whose number of GPUs followed the load.

use serde::Serialize;
use symphony_controllers::Reason;

/// GPUs over the counted time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ScalingResult {
    /// Mean number of GPUs, including draining ones.
    pub gpus_mean: f64,
    /// Least and largest number at the autoscaler's steps; `None` if there was no step.
    pub gpus_range: Option<(u32, u32)>,
    /// Number of times that GPUs were ordered.
    pub ups: u64,
    /// Number of times that GPUs were released.
    pub downs: u64,
    /// GPUs by kind of the last fleet that was chosen; `None` without a budget, or if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<Vec<u32>>,
    /// Why the last choice of a fleet was none; `None` if it was one, or nothing was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet_refused: Option<String>,
    /// Every step of the autoscaler, from the start of the run.
    #[serde(skip)]
    pub course: Vec<CourseStep>,
}

/// One step of the autoscaler, about the time since the previous one.
#[derive(Clone, Debug, PartialEq)]
pub struct CourseStep {
    /// Its end, in seconds from the start of the run.
    pub at_s: f64,
    /// Requests by model, in the order of the scenario.
    pub models: Vec<ModelCounts>,
    /// Mean number of GPUs that took plans.
    pub serving: f64,
    /// Mean number of executing GPUs among them.
    pub busy: f64,
    /// GPUs on order, before the advice.
    pub ordered: u32,
    /// GPUs draining, before the advice.
    pub draining: u32,
    /// The law's result before damping; see [`symphony_controllers::Advice::pressure`].
    pub pressure: f64,
    /// GPUs to order.
    pub add: u32,
    /// GPUs to release and orders to cancel.
    pub release: u32,
    /// Which rule led to the advice.
    pub reason: Reason,
}

/// Requests of a model in one step. Those that arrive may end in a later step.
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
