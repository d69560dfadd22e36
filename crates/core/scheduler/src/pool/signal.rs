//! The signal of a sub-cluster to all its models.

use symphony_types::GPU_CLASSES_MAX;

use crate::auto::early_start::EarlyStart;
use crate::meters::lateness_meter::Overrun;
use crate::pool::pressure::Pressure;
use crate::ranker::gpu_counts::GpuCounts;

/// The state of the whole sub-cluster, which no single model can know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSignal {
    /// The pressure (docs/adr/0011).
    pub pressure: Pressure,
    /// How early batches may start (docs/adr/0008).
    pub early_start: EarlyStart,
    /// How much longer than predicted executions take, for models with few executions of their own (docs/adr/0007).
    pub overrun: Overrun,
    /// The number of GPUs: the batches of a model start no faster than that many GPUs become free (docs/adr/0008).
    pub gpus: GpuCounts,
}

impl PoolSignal {
    /// No shedding, spare GPU time, no lateness: the values before the first signal.
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
