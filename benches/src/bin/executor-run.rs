//! Runs batches by the ONNX executor on command, for a script that compares it with ONNX Runtime's own Python.

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};
use symphony_executor::{BatchInputs, ModelExecutor, OnnxExecutor, OnnxOptions, load_runtime};
use symphony_types::TensorSpec;
use symphony_zoo::Architecture;

/// One half of benches/ort_overhead.py.
#[derive(Debug, Parser)]
#[command(name = "executor-run")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Writes a model with random weights.
    Generate {
        /// mlp, resnet50, mobilenet or bert.
        architecture: String,
        /// The file to write.
        model: PathBuf,
    },
    /// Reads numbers from standard input; for each, runs this many batches and prints how long each took, in
    /// nanoseconds, on one line.
    Run {
        /// An ONNX file.
        model: PathBuf,
        /// Items in a batch.
        #[arg(long)]
        batch: u32,
        /// The batch: all inputs in the model's order, little-endian, without gaps.
        #[arg(long)]
        inputs: PathBuf,
        /// Where the outputs of the last batch are written at the end, likewise.
        #[arg(long)]
        outputs: PathBuf,
        /// Threads that share one operator's work.
        #[arg(long, default_value_t = 1)]
        threads: usize,
    },
}

fn main() -> Result<()> {
    match Args::parse().command {
        Command::Generate { architecture, model } => {
            let known = Architecture::by_name(&architecture);
            let known =
                known.with_context(|| format!("`{architecture}`: expected mlp, resnet50, mobilenet or bert"))?;
            known.build(1)?.write(&model)?;
        }
        Command::Run { model, batch, inputs, outputs, threads } => {
            let runtime = load_runtime(None)?;
            let options = OnnxOptions { batch_max: batch, intra_threads: threads, ..OnnxOptions::default() };
            let executor = OnnxExecutor::from_file(&runtime, &model, &options)?;
            let given = std::fs::read(&inputs).with_context(|| inputs.display().to_string())?;
            let answers = serve(executor, batch, &given)?;
            std::fs::write(&outputs, answers.concat()).with_context(|| outputs.display().to_string())?;
        }
    }
    Ok(())
}

/// Runs what is asked for until the input ends. Returns the outputs of the last batch.
fn serve(mut executor: OnnxExecutor, items: u32, given: &[u8]) -> Result<Vec<Vec<u8>>> {
    let sizes = executor.signature().inputs.iter().map(TensorSpec::item_bytes).map(|size| size * items as usize);
    let (mut tensors, mut rest) = (Vec::new(), given);
    for size in sizes {
        let (tensor, others) = rest.split_at_checked(size).context("the inputs are too short for the batch")?;
        tensors.push(tensor);
        rest = others;
    }
    ensure!(rest.is_empty(), "the inputs are too long for the batch");
    let batch = BatchInputs { items, tensors: &tensors, start: None };
    let mut outputs = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let runs: usize = line?.trim().parse().context("expected a number of batches")?;
        let mut took = Vec::with_capacity(runs);
        for _ in 0..runs {
            let begun = Instant::now();
            executor.run(&batch, &mut outputs)?;
            took.push(begun.elapsed().as_nanos().to_string());
        }
        println!("{}", took.join(" "));
        std::io::stdout().flush()?;
    }
    Ok(outputs)
}
