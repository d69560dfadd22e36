//! Pipelines of a scenario: models that feed each other under one latency budget, and how many rows go along.

mod check;
mod fan_out;
mod own_models;
mod pipeline_load;
mod text;

pub use fan_out::{FanOut, FanOutLaw, result_rng};
pub(crate) use own_models::OwnModels;
pub use pipeline_load::{PipelineLoad, SCENARIO_PIPELINES_MAX, SplitRule};
pub(crate) use text::PipelineText;
