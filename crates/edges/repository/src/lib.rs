//! Models in folders, laid out as Triton's: `NAME/config.pbtxt`, `NAME/VERSION/model.onnx`.
//!
//! [`Repository`] reads and checks them as far as possible without loading; [`Rollout`] decides the requests to a
//! cluster until it serves a model or pipeline, and [`apply()`] makes them.

mod apply;
mod canary;
mod error;
mod labels;
mod model_config;
mod no_difference;
mod pipeline;
mod pipeline_calls;
mod repository;
mod rollout;
mod subject;
mod text;
mod transforms;
mod version_policy;

pub use apply::{ApplyError, LOAD_WITHIN, apply, change_model, set_traffic};
pub use canary::Canary;
pub use error::RepositoryError;
pub use labels::parse_labels;
pub use model_config::{Device, Engine, ModelConfig, parameters};
pub use pipeline::{RepositoryPipeline, parse_pipeline};
pub use pipeline_calls::{load_pipeline, unload, unload_pipeline};
pub use repository::{Repository, RepositoryEntry, RepositoryModel};
pub use rollout::{Next, Rollout};
pub use subject::versions;
pub use transforms::{parse_transforms, read_transforms};
pub use version_policy::VersionPolicy;

/// A model's configuration, in its folder.
pub const CONFIG_FILE: &str = "config.pbtxt";

/// The file beside a pipeline's configuration with what Triton's format cannot express.
pub const PIPELINE_FILE: &str = "pipeline.toml";
