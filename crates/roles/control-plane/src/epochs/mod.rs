//! The epoch loop of the Raft leader: what the leads have to do, a better plan for it, and its proposal (docs/concepts/epoch-path.md); and how
//! many GPUs they should have (docs/operating/autoscaling.md).

mod external_scaler;
mod last_loads;
mod learnt_profiles;
mod load_book;
mod load_reports;
mod planner;
mod problem;
mod reported;
mod scaling;
mod scaling_metrics;
mod scaling_settings;
mod set_aside;
mod settings;
mod solver;
mod unsaid;

pub(crate) use external_scaler::ScalerService;
pub(crate) use learnt_profiles::{LEARNT_MAX, word};
pub use load_reports::LoadReports;
pub(crate) use planner::{Ask, Planner};
pub(crate) use reported::Reported;
pub(crate) use scaling::SubclusterAdvice;
pub use scaling_metrics::{SCALING_METRIC_NAMES, ScalingCollector};
pub use scaling_settings::ScalingSettings;
pub use settings::{EpochMode, EpochSettings};
pub(crate) use solver::Solver;
pub(crate) use unsaid::Unsaid;
