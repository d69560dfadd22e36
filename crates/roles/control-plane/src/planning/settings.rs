//! Settings of the epoch loop.

use std::time::Duration;

use crate::planning::scaling_settings::ScalingSettings;

/// The time that rates are averaged over: a burst hardly moves them, and a plan is not of the past.
const RATE_OVER: Duration = Duration::from_secs(30);
/// A tenth of what one decision thread was measured to do (docs/internals/performance.md).
const SUBCLUSTER_RATE_MAX_RPS: f64 = 1e6;
/// One GiB per second, as a guess of a disk or network, until a load is measured.
const LOAD_BYTES_PER_S: u64 = 1 << 30;
/// A sixtieth of the least distance of two epochs: a search delays none.
const SOLVE_WITHIN: Duration = Duration::from_secs(1);

/// What the loop does with a better plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EpochMode {
    /// It does not look for one.
    Off,
    /// It proposes the plan, for an operator to approve.
    #[default]
    Propose,
    /// It adopts the plan.
    Adopt,
}

/// Settings of the epoch loop.
#[derive(Clone, Debug, PartialEq)]
pub struct EpochSettings {
    /// What to do with a better plan.
    pub mode: EpochMode,
    /// When to look for one.
    pub trigger: symphony_controllers::TriggerSettings,
    /// Averaging time of rates; older values count less and less.
    pub rate_over: Duration,
    /// R_max of the Symphony paper, equation 5: requests per second that a sub-cluster can decide.
    pub subcluster_rate_max_rps: f64,
    /// C_max of the Symphony paper, equation 11: bytes of models that one plan may move; none for no limit.
    pub moved_bytes_max: Option<u64>,
    /// What a backend loads per second, in bytes; used to estimate how long a plan's moves take.
    pub load_bytes_per_s: u64,
    /// How long one search may take.
    pub solve_within: Duration,
    /// Limits of the advice on numbers of GPUs.
    pub scaling: ScalingSettings,
}

impl Default for EpochSettings {
    fn default() -> Self {
        Self {
            mode: EpochMode::default(),
            trigger: symphony_controllers::TriggerSettings::default(),
            rate_over: RATE_OVER,
            subcluster_rate_max_rps: SUBCLUSTER_RATE_MAX_RPS,
            moved_bytes_max: None,
            load_bytes_per_s: LOAD_BYTES_PER_S,
            solve_within: SOLVE_WITHIN,
            scaling: ScalingSettings::default(),
        }
    }
}
