//! The engine that runs the models of a backend.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use symphony_config::ExecutorKind;
use symphony_executor::{
    EmulatedExecutor, ExecuteError, FamilyError, FamilyFile, FamilyMember, MemberOptions, ModelExecutor, Noise,
    OnnxExecutor, OnnxOptions, Pace, PartLoader, Runtime, Stop, check_within,
};
use symphony_executor_gpu::{Cuda, CudaLoader, GpuLoadError, Turn};
use symphony_protocol::view::ModelSpec;
use symphony_types::{CutDigest, LatencyProfile, ModelId};

use crate::gpu_time::{GAP_WITHIN, GpuTime};
use crate::trunks::Trunks;

/// A batch is aborted after this many times the profile's latency of the model's largest batch, and at least
/// [`RUN_WITHIN_MIN`]: it blocks its GPU, and may never end.
const RUN_WITHIN_PROFILES: u32 = 10;
/// The first batches of a model on a busy machine take longer than any profile.
const RUN_WITHIN_MIN: Duration = Duration::from_secs(10);

/// How a GPU without hardware runs batches and loads models.
#[derive(Clone, Debug)]
pub struct EmulatedGpu {
    /// Its speed relative to the profiles.
    pub pace: Arc<Pace>,
    /// The random deviation of its batches from their profiles.
    pub noise: Arc<Noise>,
    /// Bytes of models loaded per second; none for immediate loads.
    pub load_bytes_per_s: Option<NonZeroU64>,
}

/// The engine that runs the models of this backend.
#[derive(Clone, Debug)]
pub enum Engine {
    /// Takes ℓ(b), with the pace and noise of each GPU, and answers with checksums.
    Emulated(Arc<[EmulatedGpu]>),
    /// ONNX Runtime on the CPU.
    OrtCpu(OnnxEngine),
    /// ONNX Runtime on GPUs.
    OrtCuda(OnnxEngine, Arc<[Cuda]>),
    /// GPUs that multiply matrices for ℓ(b), and answer with checksums.
    CudaGemm(Arc<[Cuda]>),
    /// Loads when a test permits.
    #[cfg(test)]
    Blocked(Arc<crate::model_loader_tests::Gate>),
}

/// Why a model was not loaded.
#[derive(Debug)]
pub(crate) struct NotLoaded {
    pub(crate) reason: String,
    /// It may fit when other models have left.
    pub(crate) lacks_memory: bool,
    /// Its batch of zeros had to be aborted.
    pub(crate) hung: bool,
}

impl From<String> for NotLoaded {
    fn from(reason: String) -> Self {
        Self { reason, lacks_memory: false, hung: false }
    }
}

impl From<GpuLoadError> for NotLoaded {
    fn from(error: GpuLoadError) -> Self {
        Self { lacks_memory: error.lacks_memory(), reason: error.to_string(), hung: false }
    }
}

/// Shared by all ONNX models of a backend.
#[derive(Clone, Debug)]
pub struct OnnxEngine {
    /// The loaded library.
    pub runtime: Runtime,
    /// Directory that model paths are relative to.
    pub model_dir: PathBuf,
    /// Threads that one batch may use.
    pub intra_threads: usize,
}

impl Engine {
    /// Whether loading times are meaningful for this engine.
    pub(crate) fn takes_time_to_load(&self) -> bool {
        match self {
            Self::Emulated(gpus) => gpus.iter().any(|gpu| gpu.load_bytes_per_s.is_some()),
            Self::OrtCpu(_) | Self::OrtCuda(..) | Self::CudaGemm(_) => true,
            #[cfg(test)]
            Self::Blocked(_) => false,
        }
    }

    /// What runs ONNX files, if this is one that does.
    pub(crate) const fn onnx(&self) -> Option<&OnnxEngine> {
        match self {
            Self::OrtCpu(onnx) | Self::OrtCuda(onnx, _) => Some(onnx),
            Self::Emulated(_) | Self::CudaGemm(_) => None,
            #[cfg(test)]
            Self::Blocked(_) => None,
        }
    }

    /// Whether its models may share a trunk: those that are ONNX files.
    pub(crate) const fn hosts_families(&self) -> bool {
        self.onnx().is_some()
    }

    /// The name in metrics and views: the engine in use, which may differ from the configured one.
    pub(crate) const fn label(&self) -> &'static str {
        match self {
            Self::Emulated(_) => ExecutorKind::Emulated.label(),
            Self::OrtCpu(_) => ExecutorKind::OrtCpu.label(),
            Self::OrtCuda(..) => "ort-cuda",
            Self::CudaGemm(_) => ExecutorKind::CudaGemm.label(),
            #[cfg(test)]
            Self::Blocked(_) => "blocked",
        }
    }

    /// The device that computes: `cpu`, `cuda`, or `none`.
    pub(crate) const fn provider(&self) -> &'static str {
        match self {
            Self::Emulated(_) => "none",
            Self::OrtCpu(_) => "cpu",
            Self::OrtCuda(..) | Self::CudaGemm(_) => "cuda",
            #[cfg(test)]
            Self::Blocked(_) => "none",
        }
    }

    /// Loads one executor of the model for the GPU at this place, of `kind`. The load's own batches wait for gaps
    /// between plans. It ends early on `stop`, where the engine permits.
    pub(crate) fn load(
        &self,
        spec: &ModelSpec,
        gpu: usize,
        kind: &str,
        time: &GpuTime,
        stop: &Stop,
    ) -> Result<Box<dyn ModelExecutor>, NotLoaded> {
        let profile = spec.profiles.get(kind).ok_or_else(|| {
            let known: Vec<_> = spec.profiles.keys().map(String::as_str).collect();
            format!("no profile for GPU kind `{kind}`; the model has profiles for: {}", known.join(", "))
        })?;
        let turn = |items: u32| {
            if !time.wait_for_gap(GAP_WITHIN) {
                tracing::debug!(model = spec.name, gpu, items, "found no gap between plans");
            }
        };
        match self {
            Self::Emulated(gpus) => {
                let gpu = gpus.get(gpu).ok_or_else(|| format!("there is no emulated GPU {gpu}"))?;
                if let Some(per_second) = gpu.load_bytes_per_s {
                    let seconds = profile.static_memory_bytes as f64 / per_second.get() as f64;
                    std::thread::sleep(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
                }
                let executor = EmulatedExecutor::new(profile.latency.clone(), spec.signature.clone());
                Ok(Box::new(executor.paced(Arc::clone(&gpu.pace)).noisy(Arc::clone(&gpu.noise))))
            }
            Self::OrtCpu(onnx) => {
                let (path, options) = onnx.options(spec, &profile.latency)?;
                let executor = OnnxExecutor::from_file(&onnx.runtime, &path, &options).map_err(|e| e.to_string())?;
                let mut executor = executor.ended_by(stop.clone(), run_within(&profile.latency));
                share_memory(&mut executor, profile.static_memory_bytes, &turn).map_err(
                    |NotLoaded { reason, lacks_memory, hung }| NotLoaded {
                        reason: format!("model `{}` cannot be used: {reason}", path.display()),
                        lacks_memory,
                        hung,
                    },
                )?;
                Ok(accounted(executor, &path, &profile.latency)?)
            }
            Self::OrtCuda(onnx, gpus) => {
                let (path, options) = onnx.options(spec, &profile.latency)?;
                let loaded = opened(gpus, gpu)?.load_onnx(&onnx.runtime, &path, &options, &turn);
                Ok(accounted(loaded?, &path, &profile.latency)?)
            }
            Self::CudaGemm(gpus) => {
                let loaded = opened(gpus, gpu)?.load_gemm(&profile.latency, spec.signature.clone(), &turn);
                Ok(Box::new(loaded?))
            }
            #[cfg(test)]
            Self::Blocked(gate) => {
                gate.pass(&spec.name);
                Ok(Box::new(EmulatedExecutor::new(profile.latency.clone(), spec.signature.clone())))
            }
        }
    }
}

impl Engine {
    /// As [`load`](Self::load), in parts, with the trunk that other models share on that GPU or will share.
    ///
    /// # Errors
    /// If the engine has no families, or the model cannot be loaded like that.
    pub(crate) fn load_in_parts(
        &self,
        (model, spec): (ModelId, &ModelSpec),
        (gpu, kind, time): (usize, &str, &GpuTime),
        stop: &Stop,
        (trunk, trunks): (CutDigest, &Trunks),
    ) -> Result<Box<dyn ModelExecutor>, String> {
        let Some(onnx) = self.onnx() else { return Err("only models that are ONNX files share trunks".into()) };
        let profile = spec.profiles.get(kind).ok_or_else(|| format!("no profile for GPU kind `{kind}`"))?;
        let before = |_: u32| {
            time.wait_for_gap(GAP_WITHIN);
        };
        let (path, onnx_options) = onnx.options(spec, &profile.latency)?;
        let options =
            MemberOptions { onnx: onnx_options, stop: stop.clone(), run_within: run_within(&profile.latency) };
        before(options.onnx.batch_max);
        let file = FamilyFile::read(&path).map_err(|error| error.to_string())?;
        let place = (model.get(), trunk);
        let Self::OrtCuda(_, gpus) = self else {
            let member = file.member(&onnx.runtime, place, &options, &before);
            return shared(member, |member| trunks.on_cpus.share(gpu, member));
        };
        let loader = CudaLoader::new(opened(gpus, gpu)?, &onnx.runtime, &options.onnx);
        shared(file.member_by(loader, place, &options, &before), |member| trunks.on_gpus.share(gpu, member))
    }
}

impl OnnxEngine {
    pub(crate) fn options(&self, spec: &ModelSpec, latency: &LatencyProfile) -> Result<(PathBuf, OnnxOptions), String> {
        let Some(path) = spec.source.onnx_path() else {
            return Err("the model is emulated, this backend runs ONNX files; load it on another one".into());
        };
        let options = OnnxOptions {
            batch_max: latency.batch_max(),
            intra_threads: self.intra_threads,
            signature: Some(spec.signature.clone()),
            ..OnnxOptions::default()
        };
        let found = self.model_dir.join(path);
        // An absolute path is an operator's choice. A relative one comes from a repository, which others may be able
        // to write to.
        if Path::new(path).is_relative() {
            check_within(&self.model_dir, &found).map_err(|error| {
                format!("model `{}` cannot be used: the file cannot be read: {error}", found.display())
            })?;
        }
        Ok((found, options))
    }
}

/// A model in parts that shares the trunk which is loaded, if one is.
fn shared<L: PartLoader + 'static>(
    member: Result<FamilyMember<L>, FamilyError>,
    share: impl FnOnce(FamilyMember<L>) -> Result<FamilyMember<L>, FamilyError>,
) -> Result<Box<dyn ModelExecutor>, String> {
    let member = member.and_then(share).map_err(|error| error.to_string())?;
    Ok(Box::new(member))
}

/// The time limit of a batch.
pub(crate) fn run_within(latency: &LatencyProfile) -> Duration {
    let largest: Duration = latency.latency(latency.batch_max()).into();
    largest.saturating_mul(RUN_WITHIN_PROFILES).max(RUN_WITHIN_MIN)
}

fn opened(gpus: &[Cuda], gpu: usize) -> Result<&Cuda, String> {
    gpus.get(gpu).ok_or_else(|| format!("there is no CUDA device {gpu}"))
}

/// Reserves a model's static memory against batches, and makes its largest batch allocate now. A lack of memory is
/// thus found at the load and not by requests. A model that rejects a batch of zeros is measured by its first
/// requests.
fn share_memory(executor: &mut OnnxExecutor, profile_bytes: u64, turn: Turn<'_>) -> Result<(), NotLoaded> {
    let lacks_memory = |reason| NotLoaded { reason, lacks_memory: true, hung: false };
    let bytes = executor.memory().map_or(0, |memory| memory.static_bytes).max(profile_bytes);
    executor.keep_clear_of_batches(bytes).map_err(|error| {
        let mb = bytes.div_ceil(1 << 20);
        lacks_memory(format!("it takes {mb} MB, which others take or batches have had and keep: {error}"))
    })?;
    turn(executor.batch_max());
    // In this order, a batch that succeeds here has found room beside the model.
    match executor.warm_up() {
        Err(error @ ExecuteError::OutOfMemory { .. }) => {
            Err(lacks_memory(format!("its largest batch does not fit beside the others: {error}")))
        }
        Err(error @ ExecuteError::Ended { .. }) => {
            let reason = format!("its largest batch, of zeros, does not end: {error}");
            Err(NotLoaded { reason, lacks_memory: false, hung: true })
        }
        Err(error) => {
            tracing::warn!(%error, "a batch of zeros failed; what batches take is not known yet");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// A model whose profile covers its measured memory.
fn accounted(
    executor: impl ModelExecutor + 'static,
    path: &Path,
    latency: &LatencyProfile,
) -> Result<Box<dyn ModelExecutor>, String> {
    if let Some(sizes) = executor.batch_sizes() {
        sizes.check(latency).map_err(|problem| format!("model `{}` cannot be used: {problem}", path.display()))?;
    }
    Ok(Box::new(executor))
}
