//! The assignment problem: which row gets which column, at the least total cost.
//!
//! [`Assigner::solve`] matches as many rows and columns as forbidden pairs allow, and among such matchings one with the
//! least sum of costs. [`Assigner::solve_warm`] does so beginning from the last answer. Both are pure: equal inputs
//! (and, for the second, equal histories) give equal answers.

mod assigner;
mod assignment;
mod costs;
mod problem;
mod refused;
mod search;
mod start;

pub use assigner::Assigner;
pub use assignment::Assignment;
pub use costs::{COST_MAX, Costs, FORBIDDEN, SIDE_MAX};
pub use refused::Refused;
