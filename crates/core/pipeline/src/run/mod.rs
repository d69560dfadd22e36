//! The run of one request through its pipeline.

mod action;
mod paths;
mod pipeline_run;
mod run_check;
mod run_plan;

pub use action::{Action, Ask, AskId, Event, Lost};
pub use pipeline_run::PipelineRun;
pub use run_check::{RunCheck, Violation};
pub use run_plan::RunPlan;
