//! Which fleet a running sub-cluster should have, by what is measured of its requests.

mod measured;
mod mix;
mod planner;

pub use measured::{ServedModel, measured_problem};
pub use mix::Mix;
pub use planner::{FLEET_MARGIN, FleetPlan, FleetPlanner};
