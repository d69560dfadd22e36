//! Pipelines as files: `symphony plan split PIPELINE.toml`, and `pipeline.toml` beside an ensemble.

mod edge_words;
mod extras;
mod pipeline_file;
mod pipeline_text;

pub use edge_words::EdgeWords;
pub use extras::PipelineExtras;
pub use pipeline_file::{PipelineError, PipelineFile, ReadProfile};
