//! `symphony profile`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::Output;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ProfileArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ProfileCommand>,
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// Compare two profiles, and fail if the newer one is slower than allowed.
    Compare(ProfileCompareArgs),
    /// Calibrate matrix products that keep a GPU busy for as long as a profile says, measure them, and write the
    /// measured profile for backends with executor = "cuda-gemm".
    Gemm(ProfileGemmArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ProfileGemmArgs {
    /// Latency per item in milliseconds: l(b) = alpha * b + beta.
    #[arg(long, value_name = "MS", value_parser = positive_ms)]
    pub(crate) alpha_ms: f64,
    /// Fixed latency in milliseconds.
    #[arg(long, value_name = "MS", value_parser = positive_ms)]
    pub(crate) beta_ms: f64,
    /// Largest batch.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) batch_max: u32,
    /// Bytes of an item's input, which is copied to the GPU and back: a multiple of 4; 150528 for a picture of 224 x
    /// 224.
    #[arg(long, default_value_t = 150_528, value_parser = clap::value_parser!(u32).range(4..=64 << 20))]
    pub(crate) item_bytes: u32,
    /// Batches of each size that are measured after the calibration.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: u32,
    /// The GPU: cuda:0, cuda:1, ...
    #[arg(long, default_value = "cuda:0", value_parser = profiled_device)]
    pub(crate) device: ProfiledDevice,
    /// GPU kind that this device stands for.
    #[arg(long)]
    pub(crate) gpu_kind: String,
    /// File to write; by default none.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// The model's name in the profile.
    #[arg(long, default_value = "gemm")]
    pub(crate) name: String,
    /// Write a timeline of consecutive batches (copy in, compute, copy out): FILE.json for Perfetto and
    /// chrome://tracing.
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// What a model is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProfiledDevice {
    Cpu,
    /// A GPU by its number.
    Cuda(u32),
}

fn profiled_device(text: &str) -> Result<ProfiledDevice, String> {
    match (text, text.strip_prefix("cuda:").map(str::parse)) {
        ("cpu", _) => Ok(ProfiledDevice::Cpu),
        (_, Some(Ok(ordinal))) => Ok(ProfiledDevice::Cuda(ordinal)),
        _ => Err("expected cpu, or cuda:0, cuda:1, ... for a GPU".into()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct ProfileCompareArgs {
    /// The profile before.
    #[arg(value_name = "BEFORE.toml")]
    pub(crate) before: PathBuf,
    /// The profile now.
    #[arg(value_name = "NOW.toml")]
    pub(crate) now: PathBuf,
    /// Exit with code 1 if any batch size takes longer than before by more than this percentage.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32))]
    pub(crate) fail_above: Option<u32>,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// Which of many runs of one batch size counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LatencyOf {
    /// The shortest: on a shared machine all others measure the neighbours.
    #[default]
    Best,
    /// The median.
    Median,
    /// The 99th percentile.
    P99,
}

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// The model.
    #[arg(value_name = "MODEL.onnx", required = true)]
    pub(crate) model: Option<PathBuf>,
    /// File to write; by default the model's path with `.profile.toml`.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// The model's name in the profile; by default the file's name.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// What to measure on: cpu, or cuda:0, cuda:1, ... for a GPU, with a CUDA build of ONNX Runtime.
    #[arg(long, default_value = "cpu", value_parser = profiled_device)]
    pub(crate) device: ProfiledDevice,
    /// GPU kind that this device stands for; must be that of the GPUs which will run the model. Not cpu for a GPU.
    #[arg(long, default_value = "cpu")]
    pub(crate) gpu_kind: String,
    /// On a GPU: write a timeline of consecutive batches (copy in, compute, copy out): FILE.json for Perfetto and
    /// chrome://tracing.
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,
    /// Largest batch to measure.
    #[arg(long, default_value_t = 32)]
    pub(crate) batch_max: u32,
    /// Largest batch latency to measure, in milliseconds: the SLO, or what it leaves for execution.
    #[arg(long, value_name = "MS", value_parser = positive_ms)]
    pub(crate) slo_ms: Option<f64>,
    /// Largest memory growth of this process to measure up to, in MiB.
    #[arg(long, value_name = "MB")]
    pub(crate) memory_mb: Option<u64>,
    /// The statistic that becomes ℓ(b).
    #[arg(long, value_enum, default_value_t = LatencyOf::Best)]
    pub(crate) latency: LatencyOf,
    /// Threads that one batch may use.
    #[arg(long, default_value_t = 1)]
    pub(crate) intra_threads: usize,
    /// Write the profile even if the model's answers depend on the other items of the batch.
    #[arg(long)]
    pub(crate) allow_dependent: bool,
    /// ONNX Runtime library; by default where `make setup` puts it.
    #[arg(long, env = "SYMPHONY_ONNXRUNTIME", value_name = "FILE")]
    pub(crate) onnxruntime: Option<PathBuf>,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// Milliseconds, more than none.
fn positive_ms(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if ms.is_finite() && ms > 0.0 => Ok(ms),
        _ => Err("expected milliseconds, more than 0".into()),
    }
}
