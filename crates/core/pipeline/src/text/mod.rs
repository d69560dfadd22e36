//! Pipelines as files: `symphony plan split PIPELINE.toml`, and `pipeline.toml` beside an ensemble.

mod edge_keys;
mod extras;
mod pipeline_file;
mod pipeline_text;

pub use edge_keys::EdgeKeys;
pub use extras::PipelineExtras;
pub use pipeline_file::{PipelineError, PipelineFile, ReadProfile};
