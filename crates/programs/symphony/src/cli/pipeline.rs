//! `symphony pipeline`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ClusterArgs, FederationArgs, OperationArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum PipelineCommand {
    /// Load a pipeline of loaded models, or a new version of one, and wait until it is ready.
    Load(PipelineLoadArgs),
    /// Unload a pipeline; its models stay.
    Unload(PipelineUnloadArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PipelineLoadArgs {
    /// The name that clients use, which is that of its folder.
    pub(crate) name: String,
    /// The model repository in Triton's layout: DIR/NAME/config.pbtxt has platform "ensemble", and
    /// DIR/NAME/pipeline.toml has what Triton cannot express. The models of its steps must be loaded already.
    #[arg(long, value_name = "DIR")]
    pub(crate) repository: PathBuf,
    /// Seconds to wait until it is ready; 0 does not wait.
    #[arg(long, default_value_t = 30)]
    pub(crate) wait_s: u64,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PipelineUnloadArgs {
    /// The pipeline's name, without a version.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}
