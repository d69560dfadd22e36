//! The epoch loop of the Raft leader: measured loads, a better partition plan for them, and its proposal
//! (docs/concepts/epoch-path.md), and the budgets of pipelines. Also the advice on numbers of GPUs
//! (docs/operating/autoscaling.md).

pub(crate) mod external_scaler;
pub(crate) mod fleet_advice;
pub(crate) mod last_loads;
pub(crate) mod learnt_profiles;
pub(crate) mod load_book;
pub(crate) mod load_reports;
pub(crate) mod pipeline_book;
pub(crate) mod planner;
pub(crate) mod problem;
pub(crate) mod reported;
pub(crate) mod scaling;
pub(crate) mod scaling_metrics;
pub(crate) mod scaling_settings;
pub(crate) mod settings;
pub(crate) mod slow_gpus;
pub(crate) mod solver;
pub(crate) mod splits;
pub(crate) mod unreported;

pub(crate) use external_scaler::ScalerService;
pub(crate) use fleet_advice::FleetAdvice;
pub use fleet_advice::FleetSettings;
pub(crate) use learnt_profiles::{LEARNT_MAX, LearntProfiles, decode_learnt};
pub use load_reports::LoadReports;
pub(crate) use pipeline_book::MeasuredPipeline;
pub(crate) use planner::{Ask, Planner};
pub(crate) use reported::Reported;
pub(crate) use scaling::SubclusterAdvice;
pub use scaling_metrics::{SCALING_METRIC_NAMES, ScalingCollector};
pub use scaling_settings::ScalingSettings;
pub use settings::{EpochMode, EpochSettings};
pub(crate) use solver::Solver;
pub(crate) use splits::Question;
pub(crate) use unreported::Unreported;
