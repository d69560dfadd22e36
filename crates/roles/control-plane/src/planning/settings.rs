//! What the epoch loop holds to.

use std::time::Duration;

use crate::planning::scaling_settings::ScalingSettings;

/// What the loop does with a better plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EpochMode {
    /// Nothing: it does not look for one.
    Off,
    /// It proposes it, for an operator to approve.
    #[default]
    Propose,
    /// It adopts it.
    Adopt,
}

/// What the epoch loop holds to.
#[derive(Clone, Debug, PartialEq)]
pub struct EpochSettings {
    /// What it does with a better plan.
    pub mode: EpochMode,
    /// When it looks for one.
    pub trigger: symphony_controllers::TriggerSettings,
    /// Rates are averages over about this long: what came before counts less and less.
    pub rate_over: Duration,
    /// R_max of seed 000, equation 5: requests per second that a sub-cluster can decide.
    pub subcluster_rate_max_rps: f64,
    /// C_max of seed 000, equation 11: bytes of models that one plan may move; no limit if none.
    pub moved_bytes_max: Option<u64>,
    /// What a backend loads per second, in bytes: by it the plan tells how long its moves take.
    pub load_bytes_per_s: u64,
    /// How long one search may take.
    pub solve_within: Duration,
    /// How many GPUs sub-clusters are advised to have.
    pub scaling: ScalingSettings,
}

impl Default for EpochSettings {
    fn default() -> Self {
        Self {
            mode: EpochMode::default(),
            trigger: symphony_controllers::TriggerSettings::default(),
            rate_over: Duration::from_secs(30),
            subcluster_rate_max_rps: 1e6,
            moved_bytes_max: None,
            load_bytes_per_s: 1 << 30,
            solve_within: Duration::from_secs(1),
            scaling: ScalingSettings::default(),
        }
    }
}
