//! Settings of the autoscalers of all sub-clusters.

use std::time::Duration;

use symphony_controllers::{AutoscalerSettings, KindSettings};

use crate::planning::fleet_advice::FleetSettings;

/// The autoscaler's settings with their damping, and the limits of every sub-cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingSettings {
    /// The fewest GPUs of each kind that a sub-cluster is advised to have; without effect where there is a budget.
    pub gpus_min: u32,
    /// The most GPUs of each kind.
    pub gpus_max: u32,
    /// How long GPUs on order count: the time that provisioning may take.
    pub order_stands: Duration,
    /// Prices and a budget, if fleets are to be chosen by them.
    pub fleet: Option<FleetSettings>,
    /// Settings of the autoscaler; its kinds are replaced by those of the sub-cluster.
    pub autoscaler: AutoscalerSettings,
}

impl ScalingSettings {
    /// The settings for a sub-cluster with these capacities per GPU, by kind.
    pub(crate) fn of_kinds(&self, capacities: impl Iterator<Item = f64>) -> AutoscalerSettings {
        // Within a budget the minimum does not apply to each kind.
        let (min, max) = (if self.fleet.is_some() { 0 } else { self.gpus_min }, self.gpus_max);
        let kinds = capacities.map(|capacity| KindSettings { min, max, capacity }).collect();
        AutoscalerSettings { kinds, ..self.autoscaler.clone() }
    }
}

impl Default for ScalingSettings {
    fn default() -> Self {
        Self {
            gpus_min: 1,
            gpus_max: 4096,
            order_stands: Duration::from_secs(60),
            fleet: None,
            autoscaler: AutoscalerSettings::new(Vec::new()),
        }
    }
}
