//! Reproduces tables and figures of the papers with our own policies, beside the papers' values.

mod comparison;
mod data;
mod experiment;
mod experiments;
mod lab;
mod page;
mod partitions;
mod plot;
mod report;
mod setup;
mod system;

pub use comparison::{ComparedModel, ComparedRun, comparison_page};
pub use experiment::{EXPERIMENTS, Experiment, Paper, find};
pub use lab::{Lab, NoData, Size, Step};
pub use page::{Outcome, write_index, write_report};
pub use report::{Comparison, Reading, Report};
