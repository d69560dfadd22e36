//! Plans of the partitioner.

mod exact;
mod faults;
mod infeasible;
mod problems;
mod steady;
mod together;
