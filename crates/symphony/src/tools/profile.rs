//! `symphony profile`: measures ℓ(b) and memory of an ONNX model on this machine.

use std::path::{Path, PathBuf};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use symphony_executor::profile::{GpuProfile, MeasureOptions, Measurement, ProfileFile, measure};
use symphony_executor::{ModelExecutor, OnnxExecutor, OnnxOptions, RuntimeError, load_runtime};
use symphony_types::Signature;

use super::table;
use crate::cli::ProfileArgs;
use crate::exit::bad_input;

pub(crate) fn run(args: &ProfileArgs) -> anyhow::Result<()> {
    let stem = || args.model.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = args.name.clone().or_else(stem).context("the model's path has no file name")?;
    let options =
        OnnxOptions { batch_max: args.batch_max, intra_threads: args.intra_threads, ..OnnxOptions::default() };
    let (file, measurement) = measure_onnx(&args.model, &name, &args.gpu_kind, args.onnxruntime.as_deref(), &options)?;
    let out = args.out.clone().unwrap_or_else(|| beside(&args.model));
    file.write(&out)?;

    let rows: Vec<_> = measurement
        .batches
        .iter()
        .map(|b| vec![b.batch.to_string(), format!("{:.3}", measurement.latency.latency(b.batch).as_millis_f64())])
        .collect();
    table::print(&["BATCH", "MS"], &rows);
    let (alpha, beta) = measurement.latency.fit_line();
    println!(
        "fit: {alpha:.3} ms per item + {beta:.3} ms; memory: {} MB static, {} MB dynamic",
        measurement.static_memory_bytes >> 20,
        measurement.dynamic_memory_bytes >> 20
    );
    if measurement.raised > 0 {
        println!(
            "{} of {} sizes were measured faster than a smaller one and were raised to it",
            measurement.raised,
            measurement.batches.len()
        );
    }
    println!("written to {}", out.display());
    Ok(())
}

fn beside(model: &Path) -> PathBuf {
    model.with_extension("profile.toml")
}

/// Measures with a progress bar; the caller keeps or writes the file.
pub(crate) fn measure_onnx(
    model: &Path,
    name: &str,
    gpu_kind: &str,
    onnxruntime: Option<&Path>,
    options: &OnnxOptions,
) -> anyhow::Result<(ProfileFile, Measurement)> {
    let runtime = load_runtime(onnxruntime).map_err(|error| match error {
        RuntimeError::Unusable { .. } => bad_input(error),
        other => other.into(),
    })?;
    let bar = ProgressBar::new(1);
    bar.set_style(ProgressStyle::with_template("{prefix} {bar:32} {msg}")?);
    bar.set_prefix(format!("profiling {name}"));
    let mut signature = Signature::default();
    let load = || {
        let executor = OnnxExecutor::from_file(&runtime, model, options)?;
        signature = executor.signature().clone();
        Ok::<_, symphony_executor::LoadError>(executor)
    };
    let measure_options = MeasureOptions { batch_max: options.batch_max, ..MeasureOptions::default() };
    let measurement = measure(load, &measure_options, &mut |progress| {
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
        machine: machine(),
    };
    let file = ProfileFile { model: name.to_owned(), signature, gpus: [(gpu_kind.to_owned(), gpu)].into() };
    Ok((file, measurement))
}

/// What was measured on: processor and cores.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).and_then(|rest| rest.split_once(':'));
    format!("{}, {cores} cores", model.map_or("unknown processor", |(_, name)| name.trim()))
}
