//! Whole clusters on this machine, as separate processes.

mod cluster;
pub(crate) mod demo;
mod demo_models;
mod demo_report;
mod process;
pub(crate) mod up;
