//! A pipeline as a file: `symphony plan split PIPELINE.toml`.

mod pipeline_file;
mod pipeline_text;

pub use pipeline_file::{PipelineError, PipelineFile, ReadProfile};
