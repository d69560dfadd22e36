//! `symphony profile`: measures ℓ(b) and memory of an ONNX model on this machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use symphony_executor::profile::{GpuProfile, MeasureOptions, Measurement, ProfileFile, Statistic, measure};
use symphony_executor::{ModelExecutor, OnnxExecutor, OnnxOptions, Runtime, RuntimeError, load_runtime};
use symphony_executor_gpu::cuda_provider_is_there;
use symphony_types::{Nanos, Signature};

use super::machine::{gpu_machine, machine};
use super::profile_report::ProfileReport;
use super::{device_timeline, profile_compare, profile_gemm};
use crate::cli::{LatencyOf, MeasureArgs, Output, ProfileArgs, ProfileCommand, ProfiledDevice};
use crate::exit::bad_input;

pub(crate) fn run(args: &ProfileArgs) -> anyhow::Result<()> {
    match &args.command {
        Some(ProfileCommand::Compare(args)) => profile_compare::run(args),
        Some(ProfileCommand::Gemm(args)) => profile_gemm::run(args),
        None => measure_and_write(&args.measure),
    }
}

fn measure_and_write(args: &MeasureArgs) -> anyhow::Result<()> {
    let model = args.model.as_deref().context("a model must be given")?;
    let stem = || model.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = args.name.clone().or_else(stem).context("the model's path has no file name")?;
    let options =
        OnnxOptions { batch_max: args.batch_max, intra_threads: args.intra_threads, ..OnnxOptions::default() };
    let measure_options = MeasureOptions {
        batch_max: args.batch_max,
        statistic: match args.latency {
            LatencyOf::Best => Statistic::Best,
            LatencyOf::Median => Statistic::Median,
            LatencyOf::P99 => Statistic::P99,
        },
        latency_max: args.slo_ms.map(Nanos::from_millis_f64),
        memory_max_bytes: args.memory_mb.map(|mb| mb << 20),
        ..MeasureOptions::default()
    };
    let (file, measurement) = match args.device {
        ProfiledDevice::Cpu if args.timeline.is_some() => {
            return Err(bad_input("--timeline shows copies to a GPU; it needs --device cuda:0 or another one"));
        }
        ProfiledDevice::Cpu => {
            measure_onnx(model, &name, &args.gpu_kind, args.onnxruntime.as_deref(), &options, &measure_options)?
        }
        ProfiledDevice::Cuda(ordinal) => measure_on_cuda(args, model, &name, ordinal, &options, &measure_options)?,
    };
    let refused = measurement.dependence.as_ref().filter(|_| !args.allow_dependent);
    let out = args.out.clone().unwrap_or_else(|| beside(model));
    let written = if refused.is_none() { file.write(&out).map(|()| true) } else { Ok(false) };
    let report = ProfileReport {
        model: &name,
        gpu_kind: &args.gpu_kind,
        statistic: measure_options.statistic,
        measurement: &measurement,
        written_to: matches!(written, Ok(true)).then_some(out.as_path()),
    };
    match args.output {
        Output::Table => report.print(),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report.to_json())?),
    }
    // After the report, so that the measurements are not lost if a file cannot be written.
    written?;
    if let Some(dependence) = refused {
        bail!(
            "answers depend on the batch: {dependence}. Such a model must not be batched; --allow-dependent writes it"
        );
    }
    if let (ProfiledDevice::Cuda(ordinal), Some(timeline)) = (&args.device, &args.timeline) {
        let (gpu, runtime) = (device_timeline::open(*ordinal)?, runtime(args.onnxruntime.as_deref())?);
        let (mut loaded, title) =
            (gpu.load_onnx(&runtime, model, &options, &|_| ())?, format!("{name} on {}", gpu.name()));
        device_timeline::write(&mut loaded, measurement.latency.batch_max(), &title, timeline)?;
    }
    Ok(())
}

fn beside(model: &Path) -> PathBuf {
    model.with_extension("profile.toml")
}

/// Measures on the CPU with a progress bar; the caller keeps or writes the file.
pub(crate) fn measure_onnx(
    model: &Path,
    name: &str,
    gpu_kind: &str,
    onnxruntime: Option<&Path>,
    options: &OnnxOptions,
    measure_options: &MeasureOptions,
) -> anyhow::Result<(ProfileFile, Measurement)> {
    let runtime = runtime(onnxruntime)?;
    let load = || OnnxExecutor::from_file(&runtime, model, options);
    measured(name, gpu_kind, machine(), load, measure_options)
}

fn runtime(onnxruntime: Option<&Path>) -> anyhow::Result<Runtime> {
    load_runtime(onnxruntime).map_err(|error| match error {
        RuntimeError::Unusable { .. } => bad_input(error),
        other => other.into(),
    })
}

fn measure_on_cuda(
    args: &MeasureArgs,
    model: &Path,
    name: &str,
    ordinal: u32,
    options: &OnnxOptions,
    measure_options: &MeasureOptions,
) -> anyhow::Result<(ProfileFile, Measurement)> {
    if args.gpu_kind == "cpu" || args.gpu_kind.starts_with("cpu-") {
        return Err(bad_input("a CUDA device is no `cpu`; give the kind of the GPU with --gpu-kind, such as h100"));
    }
    let gpu = device_timeline::open(ordinal)?;
    let runtime = runtime(args.onnxruntime.as_deref())?;
    cuda_provider_is_there(&runtime).map_err(bad_input)?;
    let load = || gpu.load_onnx(&runtime, model, options, &|_| ());
    measured(name, &args.gpu_kind, gpu_machine(&gpu), load, measure_options)
}

fn measured<E: ModelExecutor, L: std::fmt::Display>(
    name: &str,
    gpu_kind: &str,
    machine: String,
    load: impl FnOnce() -> Result<E, L>,
    measure_options: &MeasureOptions,
) -> anyhow::Result<(ProfileFile, Measurement)> {
    let bar = ProgressBar::new(1);
    bar.set_style(ProgressStyle::with_template("{prefix} {bar:32} {msg}")?);
    bar.set_prefix(format!("profiling {name}"));
    let mut signature = Signature::default();
    let load = || {
        let executor = load()?;
        signature = executor.signature().clone();
        Ok::<_, L>(executor)
    };
    let measurement = measure(load, measure_options, &mut |progress| {
        bar.set_length(progress.of as u64);
        bar.set_position(progress.done as u64);
        bar.set_message(format!("batch {}", progress.batch));
    })
    .map_err(bad_input)?;
    bar.finish_and_clear();
    let gpu = GpuProfile {
        latency: measurement.latency.clone(),
        static_memory_bytes: measurement.static_memory_bytes,
        dynamic_memory_bytes: measurement.dynamic_memory_bytes,
        machine,
        raised_batches: measurement.raised_batches.clone(),
    };
    let file = ProfileFile { model: name.to_owned(), signature, gpus: [(gpu_kind.to_owned(), gpu)].into() };
    Ok((file, measurement))
}
