//! `symphony profile gemm`: matrix products that take as long as a profile says, and how close they come.

use std::time::Instant;

use anyhow::Context;
use serde_json::json;
use symphony_executor::profile::{GpuProfile, ProfileFile, raise_to_monotone};
use symphony_executor::{BatchInputs, ModelExecutor};
use symphony_types::{DataType, LatencyProfile, Nanos, Signature, TensorSpec};

use super::device_timeline;
use super::machine::gpu_machine;
use crate::cli::{Output, ProfileGemmArgs, ProfiledDevice};
use crate::exit::bad_input;
use crate::inspect::table;

/// One batch size, measured.
struct Measured {
    batch: u32,
    wanted: Nanos,
    median: Nanos,
    high: Nanos,
}

impl Measured {
    /// The relative deviation of the median from the desired time.
    fn error(&self) -> f64 {
        self.median.as_millis_f64() / self.wanted.as_millis_f64() - 1.0
    }
}

pub(super) fn run(args: &ProfileGemmArgs) -> anyhow::Result<()> {
    let ProfiledDevice::Cuda(ordinal) = args.device else {
        return Err(bad_input("--device: expected a GPU, cuda:0 or another one"));
    };
    if !args.item_bytes.is_multiple_of(4) {
        return Err(bad_input(format!("--item-bytes is {}; expected a multiple of 4", args.item_bytes)));
    }
    let wanted = LatencyProfile::from_line(args.alpha_ms, args.beta_ms, args.batch_max).map_err(bad_input)?;
    let gpu = device_timeline::open(ordinal)?;
    let tensor = |name: &str, data_type, width| TensorSpec { name: name.into(), data_type, item_shape: vec![width] };
    let signature = Signature {
        inputs: vec![tensor("INPUT0", DataType::Fp32, args.item_bytes / 4)],
        outputs: vec![tensor("OUTPUT0", DataType::Uint32, 1)],
    };
    let begin = Instant::now();
    let mut model = gpu.load_gemm(&wanted, signature.clone(), &|_| ())?;
    let calibrated_in = begin.elapsed();
    let mut measured = Vec::new();
    for batch in 1..=wanted.batch_max() {
        measured.push(measure(&mut model, batch, wanted.latency(batch), args.runs)?);
    }
    if let Some(out) = &args.out {
        let mut latencies: Vec<_> = measured.iter().map(|m| (m.batch, m.median)).collect();
        // A profile never falls; a measurement may, within the tolerance.
        let raised_batches = raise_to_monotone(&mut latencies);
        let latencies: Vec<_> = latencies.into_iter().map(|(_, latency)| latency).collect();
        let memory = model.device_memory().unwrap_or_default();
        let profile = GpuProfile {
            latency: LatencyProfile::from_table(&latencies)?,
            static_memory_bytes: memory.static_bytes,
            dynamic_memory_bytes: memory.dynamic_bytes,
            machine: gpu_machine(&gpu),
            raised_batches,
        };
        let gpus = [(args.gpu_kind.clone(), profile)].into();
        ProfileFile { model: args.name.clone(), signature, gpus }.write(out)?;
        eprintln!("written to {}", out.display());
    }
    // After the profile, which is more expensive: a failure to write the timeline does not lose it.
    let hidden = match &args.timeline {
        Some(out) => {
            let title = format!("{} on {}", args.name, gpu.name());
            Some(device_timeline::write(&mut model, wanted.batch_max(), &title, out)?)
        }
        None => None,
    };
    match args.output {
        Output::Table => {
            let ms = |nanos: Nanos| format!("{:.3}", nanos.as_millis_f64());
            let row = |m: &Measured| {
                vec![
                    m.batch.to_string(),
                    ms(m.wanted),
                    ms(m.median),
                    ms(m.high),
                    format!("{:+.2} %", m.error() * 100.0),
                ]
            };
            table::print(&["BATCH", "WANTED", "MEDIAN", "P99", "ERROR"], &measured.iter().map(row).collect::<Vec<_>>());
            println!("{}, calibrated in {:.1} s", gpu_machine(&gpu), calibrated_in.as_secs_f64());
        }
        Output::Json => {
            let row = |m: &Measured| {
                let ms = Nanos::as_millis_f64;
                json!({ "batch": m.batch, "wanted_ms": ms(m.wanted), "median_ms": ms(m.median), "p99_ms": ms(m.high),
                        "error": m.error() })
            };
            let batches: Vec<_> = measured.iter().map(row).collect();
            let report = json!({ "device": gpu.name(), "driver_cuda": [gpu.driver().0, gpu.driver().1],
                "calibrated_s": calibrated_in.as_secs_f64(), "copies_hidden": hidden, "batches": batches });
            println!("{report}");
        }
    }
    Ok(())
}

/// Batches as a busy backend runs them: from launch to answers, while the next batch's inputs are copied.
fn measure(model: &mut impl ModelExecutor, batch: u32, wanted: Nanos, runs: u32) -> anyhow::Result<Measured> {
    let item = model.signature().inputs[0].item_bytes();
    let input = vec![0x5a; item * batch as usize];
    let (tensors, mut times, mut outputs) = ([input.as_slice()], Vec::new(), Vec::new());
    let inputs = BatchInputs { items: batch, tensors: &tensors, start: None };
    let steps = model.in_steps().context("the executor has no steps")?;
    steps.stage(&inputs)?;
    for run in 0..=runs {
        let begin = Instant::now();
        steps.launch()?;
        if run < runs {
            steps.stage(&inputs)?;
        }
        steps.finish(&mut outputs)?;
        // The first one waited for its inputs.
        if run > 0 {
            times.push(Nanos::from(begin.elapsed()));
        }
    }
    times.sort_unstable();
    let at = |share: usize| times[(times.len() * share).div_ceil(100).max(1) - 1];
    Ok(Measured { batch, wanted, median: at(50), high: at(99) })
}

#[cfg(test)]
mod tests {
    use symphony_executor::default_signature;
    use symphony_executor_gpu::overlap::{FakeDevice, FakePace};
    use symphony_executor_gpu::{Answers, StagedModel};

    use super::*;

    #[test]
    fn every_batch_counts_but_the_first() {
        let device = FakeDevice::new(&[64], FakePace::default(), 1);
        let mut model = StagedModel::new(device, "fake", default_signature(), 8, Answers::Checksums);
        let measured = measure(&mut model, 4, Nanos::from_millis(1), 3).unwrap();
        assert!(measured.median <= measured.high && measured.median > Nanos::ZERO);
        assert_eq!(model.in_steps().unwrap().staged(), 0, "nothing is left");
        let near =
            Measured { batch: 1, wanted: Nanos::from_millis(10), median: Nanos::from_millis(11), high: Nanos::ZERO };
        assert!((near.error() - 0.1).abs() < 1e-9);
    }
}
