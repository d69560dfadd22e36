//! `[backend]`: the settings of one backend.

use std::path::PathBuf;

use crate::{Address, PayloadsConfig};

/// `[backend]`: a process with GPUs, its links and its executor.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendConfig {
    /// Its name, unique in the cluster. No default: two backends with one name would displace each other.
    pub name: String,
    /// The sub-cluster its GPUs join.
    pub subcluster: String,
    /// Where schedulers send batch plans: an address by which they can reach it.
    pub exec: Address,
    /// Where it serves metrics, health and the console.
    pub metrics: Address,
    /// The executor of batches.
    pub executor: ExecutorKind,
    /// What ONNX models are to run on.
    pub device: DeviceKind,
    /// Whether the backend refuses to start if that device is missing, instead of using the CPU.
    pub device_required: bool,
    /// The GPUs that it offers, in this order.
    pub gpus: Vec<GpuConfig>,
    /// A file with the slowdown of each GPU of an emulated backend, read repeatedly; none (an empty string) for no
    /// slowdown.
    #[serde(with = "crate::empty_is_none")]
    pub pace_file: Option<PathBuf>,
    /// The random deviation of an emulated backend's batches from their profiles: the standard deviation of the
    /// logarithm of a lognormal factor with mean one; 0 for none.
    pub noise: f64,
    /// MB of models that an emulated backend loads per second, one GPU after the other; 0 for immediate loads.
    pub emulated_load_mb_per_s: u64,
    /// Directory that the paths of models are relative to.
    pub model_dir: PathBuf,
    /// The ONNX Runtime library; none (an empty string) searches where `make setup` puts it.
    #[serde(with = "crate::empty_is_none")]
    pub onnxruntime: Option<PathBuf>,
    /// Threads that one batch may use.
    pub intra_op_threads: u32,
    /// The journal file for seals, accepted plans and executions, which a checker reads; none (an empty string) writes
    /// nothing.
    #[serde(with = "crate::empty_is_none")]
    pub journal_file: Option<PathBuf>,
    /// The largest journal, in MB of 2^20 bytes.
    pub journal_mb_max: u64,
    /// How inputs and results travel.
    pub payloads: PayloadsConfig,
}

/// The executor of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecutorKind {
    /// ONNX Runtime, on the CPU unless `device` says something else.
    #[serde(alias = "ort")]
    OrtCpu,
    /// NVIDIA GPUs that multiply matrices for as long as the profile says and answer with a checksum of the input.
    CudaGemm,
    /// Takes exactly as long as the profile says and answers with a checksum of the input.
    Emulated,
}

impl ExecutorKind {
    /// The name in configuration, metrics and views.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::OrtCpu => "ort-cpu",
            Self::CudaGemm => "cuda-gemm",
            Self::Emulated => "emulated",
        }
    }
}

/// What ONNX models run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// CPUs. GPUs have kinds and profiles of their own, so they are never chosen automatically.
    Auto,
    /// Processors.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
}

/// Some equal GPUs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuConfig {
    /// Their kind: profiles are per kind.
    pub kind: String,
    /// How many.
    pub count: u32,
    /// Memory of each, in MB of 2²⁰ bytes.
    pub memory_mb: u64,
}

impl GpuConfig {
    /// Memory of each, in bytes.
    #[must_use]
    pub const fn memory_bytes(&self) -> u64 {
        self.memory_mb.saturating_mul(1 << 20)
    }
}
