//! Whole simulations.

mod auto;
mod autoscale;
mod budgets;
mod family;
mod gpu_kinds;
mod kairos_artifact;
mod never_panics;
mod pipelines;
mod planted_drop;
mod preflight;
mod reality;
mod result_format;
mod rivals;
mod scenario_files;
mod shedding;
mod stragglers;
mod theory;
mod timeline;
mod unmerged;
