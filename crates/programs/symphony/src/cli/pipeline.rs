//! `symphony pipeline`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{CanaryArgs, ClusterArgs, FederationArgs, OperationArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum PipelineCommand {
    /// Load a pipeline of loaded models; other versions of it are unloaded when it is ready.
    Load(PipelineLoadArgs),
    /// Unload a pipeline, or one version of it; its models stay.
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
    #[command(flatten)]
    pub(crate) canary: CanaryArgs,
    /// Seconds to wait until it is ready, and other versions can be unloaded; 0 does not wait, and unloads none.
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
    /// The pipeline's name; NAME@VERSION for one version of it, NAME for all.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}
