//! What a policy for a cluster knows from the start.

use symphony_types::GPU_PLANS_MAX;

/// What a policy is built with. Models, GPUs and delays come and change as inputs.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFacts {
    /// Seed of the policy's random choices, if it makes any.
    pub seed: u64,
    /// Whether a running batch can be stopped. Simulated GPUs can; no backend can.
    pub can_preempt: bool,
    /// The most plans of a GPU that have not ended, at least one.
    pub plans_max: u32,
}

/// What clusters offer.
impl Default for ClusterFacts {
    fn default() -> Self {
        Self { seed: 0, can_preempt: false, plans_max: GPU_PLANS_MAX }
    }
}

impl ClusterFacts {
    /// What the simulator offers: GPUs that can be stopped and queue any number of plans.
    #[must_use]
    pub fn simulated(seed: u64) -> Self {
        Self { seed, can_preempt: true, plans_max: u32::MAX }
    }
}
