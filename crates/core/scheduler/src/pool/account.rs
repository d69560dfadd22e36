//! What was asked of models, and what they gave up.

use symphony_types::{GpuClasses, Nanos, RequestValue};

use crate::auto::demand::Demand;

/// What a model, or several together, saw in some time: GPU time, at the batch sizes that the models aim at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// What arrived.
    pub asked: Nanos,
    /// The same, divided by the value of its model; and what arrived so long ago that it is forgotten, as far as it is
    /// dropped now.
    pub asked_by_value: Nanos,
    /// What was shed.
    pub shed: Nanos,
    /// What was lost besides: dropped from the queue, or turned away by a full one. Requests that could not have been
    /// met on an idle cluster are left out.
    pub dropped: Nanos,
    /// What the pressure called upon models to give up.
    pub called: Nanos,
    /// The same as if any of them could give up all that arrives, and more.
    pub called_in_full: Nanos,
    /// Classes of GPUs that could have met something of what was lost, had they been idle when it arrived.
    pub could_serve: GpuClasses,
    /// The largest value among the models that were asked.
    pub value_max: Option<RequestValue>,
    /// How much longer than predicted the plans may have taken that were reported, at the quantile that is planned for.
    pub longer: Nanos,
    /// How long these plans should have taken.
    pub predicted: Nanos,
    /// What arrived, whoever sheds, by how early batches start.
    pub demand: Demand,
}

impl Account {
    /// This and another one.
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
