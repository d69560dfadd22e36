//! How many GPUs of which kind to rent within a budget: throughput bounds of fleets, their ranking, the choice in one
//! shot, and the search that evaluates few of them (Kairos, sections 5.2 and 8.3).
//!
//! Pure: text comes in, values go out. Files, clocks and the simulator are the caller's.

mod advice;
mod candidates;
mod choice;
mod classes;
mod error;
mod fluid;
mod kairos_bound;
mod latency;
mod problem;
mod problem_file;
mod problem_text;
mod scenario;
mod search;

pub use advice::{FLEET_MARGIN, FleetPlan, FleetPlanner, Mix, ServedModel, measured_problem};
pub use candidates::{CONFIGURATIONS_MAX, candidates};
pub use choice::{Bound, FLUID_WORK_MAX, RankError, RankedFleet, Ranking, rank};
pub use classes::Merging;
pub use error::FleetError;
pub use fluid::{FluidBound, SIMPLEX_STEPS_MAX};
pub use kairos_bound::{Auxiliary, KairosBound};
pub use latency::LatencyTable;
pub use problem::{FLEET_MODELS_MAX, FleetModel, FleetProblem, Kind};
pub use scenario::Trial;
pub use search::{Evaluation, Evaluator, Found, search};
