//! What the autoscalers of all sub-clusters hold to.

use std::time::Duration;

use symphony_controllers::{AutoscalerSettings, KindSettings};

/// The law with its damping, and the limits of every sub-cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingSettings {
    /// The fewest GPUs of each kind that a sub-cluster is advised to have.
    pub gpus_min: u32,
    /// The most.
    pub gpus_max: u32,
    /// GPUs that were asked for are counted on for so long: what brings them takes its time.
    pub order_stands: Duration,
    /// The law; its kinds are those of the sub-cluster at hand.
    pub law: AutoscalerSettings,
}

impl ScalingSettings {
    /// The law for a sub-cluster with GPUs that do so much each, by kind.
    pub(crate) fn of_kinds(&self, capacities: impl Iterator<Item = f64>) -> AutoscalerSettings {
        let (min, max) = (self.gpus_min, self.gpus_max);
        let kinds = capacities.map(|capacity| KindSettings { min, max, capacity }).collect();
        AutoscalerSettings { kinds, ..self.law.clone() }
    }
}

impl Default for ScalingSettings {
    fn default() -> Self {
        Self {
            gpus_min: 1,
            gpus_max: 4096,
            order_stands: Duration::from_secs(60),
            law: AutoscalerSettings::new(Vec::new()),
        }
    }
}
