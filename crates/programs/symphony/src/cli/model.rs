//! `symphony model`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use symphony_policy::ModelPolicy;
use symphony_repository::LOAD_WITHIN;
use symphony_types::parse_version;

use super::{ClusterArgs, FederationArgs, OperationArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Load a model and wait until it is ready.
    Load(Box<ModelLoadArgs>),
    /// Unload a model; queued requests fail, running ones are answered.
    Unload(ModelUnloadArgs),
    /// Change the SLO, policy or value of a loaded model; its queued requests stay queued.
    Set(ModelSetArgs),
    /// Split the requests for a model or pipeline that name no version among its versions; without arguments show the
    /// split.
    Traffic(ModelTrafficArgs),
    /// Write an ONNX model with random weights, for load: mlp, resnet50, mobilenet or bert.
    Generate(ModelGenerateArgs),
}

#[derive(Debug, Args)]
#[command(override_usage = "symphony model load <NAME> --onnx <FILE> --profile <FILE> --slo-ms <MS> [OPTIONS]
       symphony model load <NAME> --emulated --alpha-ms <MS> --beta-ms <MS> --slo-ms <MS> [OPTIONS]
       symphony model load <NAME> --repository <DIR> [OPTIONS]")]
pub(crate) struct ModelLoadArgs {
    /// The name that clients use.
    pub(crate) name: String,
    /// Load it from a model repository in Triton's layout: DIR/NAME/config.pbtxt has all other settings. Backends see
    /// the same folder at backend.model_dir. Versions that the repository no longer serves are unloaded once the new
    /// ones are ready.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["onnx", "emulated", "profile", "alpha_ms", "beta_ms", "batch_max", "gpu_kind",
          "own_trunk", "transforms", "slo_ms", "subcluster", "policy", "value", "to_cluster", "wanted_rps", "operation_id"])]
    pub(crate) repository: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) canary: CanaryArgs,
    /// Path of the ONNX file on the backends; needs --profile.
    #[arg(long, value_name = "FILE", conflicts_with = "emulated")]
    pub(crate) onnx: Option<PathBuf>,
    /// Use no file: emulated GPUs take the profile's time and answer with a checksum of the input.
    #[arg(long)]
    pub(crate) emulated: bool,
    /// Do not share its trunk with other models that begin with the same layers; with --repository, set the parameter
    /// `own_trunk` instead.
    #[arg(long, requires = "onnx")]
    pub(crate) own_trunk: bool,
    /// Profile written by `symphony profile`.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["alpha_ms", "repository"])]
    pub(crate) profile: Option<PathBuf>,
    /// Latency per item in milliseconds, instead of a profile: l(b) = alpha * b + beta.
    #[arg(long, requires = "beta_ms", conflicts_with = "profile")]
    pub(crate) alpha_ms: Option<f64>,
    /// Fixed latency in milliseconds.
    #[arg(long, requires = "alpha_ms", conflicts_with = "profile")]
    pub(crate) beta_ms: Option<f64>,
    /// Largest batch, with --alpha-ms.
    #[arg(long, default_value_t = 64)]
    pub(crate) batch_max: u32,
    /// GPU kind that --alpha-ms and --beta-ms are for; see `symphony get gpus`.
    #[arg(long, default_value = "emulated")]
    pub(crate) gpu_kind: String,
    /// TOML file with the transforms that frontends apply: `[image]`, the input that JPEG and PNG pictures become, and
    /// `[labels]`. With --repository, the parameter `transforms` names it instead.
    #[arg(long, value_name = "FILE")]
    pub(crate) transforms: Option<PathBuf>,
    /// Latency objective from arrival to answer, in milliseconds, an hour at most. With --repository, the repository
    /// has it.
    #[arg(long, required_unless_present = "repository")]
    pub(crate) slo_ms: Option<f64>,
    /// Sub-cluster, see `symphony get subclusters`; needed if there are several, as with `symphony up`.
    #[arg(long, default_value = "")]
    pub(crate) subcluster: String,
    /// Scheduling policy: auto (at once when there is GPU time to spare, in large batches when there is not), symphony
    /// (always the largest batch that meets the SLO), eager, timeout (a quarter of the SLO) or clipper, or a table of
    /// the name and its options as in scenarios: '{ name = "timeout", share = 0.1 }'.
    #[arg(long, default_value_t)]
    pub(crate) policy: ModelPolicy,
    /// Value of a request relative to those of other models; 0.001 to 1000. With policy auto, or shed = "proportional":
    /// in an overload a model of value 4 loses a quarter of the share that one of value 1 loses. With --federation:
    /// after a loss the most valuable are placed first.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) value: f64,
    /// Seconds to wait until the model is ready; 0 does not wait.
    #[arg(long, default_value_t = LOAD_WITHIN.as_secs())]
    pub(crate) wait_s: u64,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    /// With --federation: the cluster to start in. Default: wherever there is room.
    #[arg(long, value_name = "CLUSTER", requires = "federation", default_value = "")]
    pub(crate) to_cluster: String,
    /// With --federation: expected requests per second; it is placed by them until more are measured.
    #[arg(long, value_name = "RPS", requires = "federation", default_value_t = 0.0)]
    pub(crate) wanted_rps: f64,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// How the newest version of a folder is tried out, of a model or pipeline.
#[derive(Debug, Args)]
pub(crate) struct CanaryArgs {
    /// Give the newest version in the repository this percentage of the requests that name no version, step by step,
    /// before it gets all of them and old versions are unloaded; roll it back if it answers badly.
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', requires = "repository", conflicts_with = "operation_id",
          value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) canary: Vec<u32>,
    /// Seconds that each step of --canary lasts.
    #[arg(long, requires = "canary", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) canary_step_s: u64,
    /// Share of requests that a canary may drop, answer late or fail, beyond that of the older versions.
    #[arg(long, requires = "canary", default_value_t = 0.02)]
    pub(crate) canary_bad_max: f64,
}

#[derive(Debug, Args)]
pub(crate) struct ModelUnloadArgs {
    /// The model's name; NAME@VERSION for one version of it, NAME for all.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
#[group(id = "change", required = true, multiple = true, args = ["slo_ms", "policy", "value"])]
pub(crate) struct ModelSetArgs {
    /// The model's name; NAME@VERSION for a version.
    pub(crate) name: String,
    /// Latency objective from arrival to answer, in milliseconds, an hour at most.
    #[arg(long)]
    pub(crate) slo_ms: Option<f64>,
    /// Scheduling policy, as for `symphony model load`.
    #[arg(long)]
    pub(crate) policy: Option<ModelPolicy>,
    /// Value of a request relative to those of other models; 0.001 to 1000.
    #[arg(long)]
    pub(crate) value: Option<f64>,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ModelTrafficArgs {
    /// The name of the model or pipeline, without a version.
    pub(crate) name: String,
    /// Weights of versions, as 1=95 2=5. Versions that are not ready get nothing.
    #[arg(value_name = "VERSION=WEIGHT", value_parser = weight)]
    pub(crate) weights: Vec<(u64, u32)>,
    /// Copy this percentage of the requests to a version, whose answers are discarded; of models only.
    #[arg(long, value_name = "VERSION=PERCENT", value_parser = weight)]
    pub(crate) shadow: Option<(u64, u32)>,
    /// Remove the split: the latest version gets all requests, and there are no copies.
    #[arg(long, conflicts_with_all = ["weights", "shadow"])]
    pub(crate) clear: bool,
    #[command(flatten)]
    pub(crate) federation: FederationArgs,
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

fn weight(text: &str) -> Result<(u64, u32), String> {
    let parts = text.split_once('=');
    let weight = parts.and_then(|(version, number)| Some((parse_version(version)?, number.parse().ok()?)));
    weight.ok_or_else(|| format!("`{text}`; expected VERSION=NUMBER, as 2=5"))
}

#[derive(Debug, Args)]
pub(crate) struct ModelGenerateArgs {
    /// mlp, resnet50, mobilenet or bert.
    pub(crate) architecture: String,
    /// File to write.
    #[arg(value_name = "FILE.onnx")]
    pub(crate) out: PathBuf,
    /// Seed of the weights: the same seed gives the same bytes.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Seed of the last layer of an mlp: models of the same --seed that differ in it share all other layers.
    #[arg(long, value_name = "SEED")]
    pub(crate) head: Option<u64>,
    /// Hidden layers of an mlp, 2 if not given: each takes as much time and memory as the second one.
    #[arg(long, value_name = "LAYERS")]
    pub(crate) hidden: Option<u32>,
}
