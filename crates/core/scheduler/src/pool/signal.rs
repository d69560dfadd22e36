//! What a sub-cluster tells all its models.

use symphony_types::GPU_CLASSES_MAX;

use crate::auto::early_start::EarlyStart;
use crate::meters::lateness_meter::Overrun;
use crate::pool::pressure::Pressure;
use crate::ranker::gpu_counts::GpuCounts;

/// What models cannot know by themselves, since it is a matter of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSignal {
    /// How hard the sub-cluster is pressed (docs/adr/0011).
    pub pressure: Pressure,
    /// How early batches may start (docs/adr/0008).
    pub early_start: EarlyStart,
    /// How much longer than predicted executions take, for models that have had few (docs/adr/0007).
    pub overrun: Overrun,
    /// GPUs there are: batches of a model start no faster than these come free again (docs/adr/0008).
    pub gpus: GpuCounts,
}

impl PoolSignal {
    /// Nothing to give up, time to spare, and nothing late: what holds as long as nothing is said.
    pub const NONE: Self = Self {
        pressure: Pressure::NONE,
        early_start: EarlyStart::AT_ONCE,
        overrun: Overrun::NONE,
        gpus: GpuCounts([0; GPU_CLASSES_MAX]),
    };
}

impl From<Pressure> for PoolSignal {
    fn from(pressure: Pressure) -> Self {
        Self { pressure, ..Self::NONE }
    }
}
