//! Accounts: the load of models and what they shed and dropped.

use symphony_types::{GpuClasses, Nanos, RequestValue};

use crate::auto::demand::Demand;

/// The account of one or several models over some time, as GPU time at their target batch sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Arrived load.
    pub asked: Nanos,
    /// Arrived load, each model's divided by its value. It includes load that arrived before the window but is dropped
    /// now.
    pub asked_by_value: Nanos,
    /// Load that was shed.
    pub shed: Nanos,
    /// Load lost otherwise: dropped from the queue, or refused because it was full. Requests that even an idle cluster
    /// could not have met are left out.
    pub dropped: Nanos,
    /// Load that the pressure required models to shed.
    pub called: Nanos,
    /// Load that it required without the limit on each model's share.
    pub called_in_full: Nanos,
    /// GPU classes that, if idle, could have met some of the lost load when it arrived.
    pub could_serve: GpuClasses,
    /// The largest value among the models with load.
    pub value_max: Option<RequestValue>,
    /// Total overrun of the reported plans, at the quantile to plan for.
    pub longer: Nanos,
    /// Total prediction of these plans.
    pub predicted: Nanos,
    /// Arrived load before shedding, per early-start level.
    pub demand: Demand,
}

impl Account {
    /// The sum of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            asked: self.asked + other.asked,
            asked_by_value: self.asked_by_value + other.asked_by_value,
            shed: self.shed + other.shed,
            dropped: self.dropped + other.dropped,
            called: self.called + other.called,
            called_in_full: self.called_in_full + other.called_in_full,
            could_serve: self.could_serve.and(other.could_serve),
            value_max: self.value_max.max(other.value_max),
            longer: self.longer + other.longer,
            predicted: self.predicted + other.predicted,
            demand: self.demand.and(other.demand),
        }
    }
}
