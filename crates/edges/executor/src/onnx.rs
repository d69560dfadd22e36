//! Runs ONNX models on the CPU with ONNX Runtime.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ort::session::{RunOptions, Session, SessionInputValue};
use symphony_types::Signature;

use crate::batch_memory::{self, KeptClear};
use crate::batch_sizes::BatchSizes;
use crate::element::{Elements, append_bytes};
use crate::onnx_session::{LoadError, OnnxInput, OnnxOptions, OnnxSession};
use crate::port::{BatchInputs, ExecuteError, MemoryUse, ModelExecutor};
use crate::resources::resident_bytes;
use crate::runtime::Runtime;
use crate::stop::Stop;

/// A model in the process, run on the calling thread.
pub struct OnnxExecutor {
    /// It goes before its session.
    kept_clear: Option<KeptClear>,
    session: Session,
    shares_batch_memory: bool,
    signature: Signature,
    batch_max: u32,
    sizes: Option<BatchSizes>,
    /// In the model's order.
    inputs: Vec<Input>,
    /// Where the model has each output of the signature.
    outputs: Vec<usize>,
    memory: MemoryUse,
    /// The largest batch so far: only a larger one makes the runtime take more memory.
    largest_run: u32,
    stop: Stop,
    /// A batch that takes longer is aborted.
    run_within: Option<Duration>,
}

/// An input of the model.
struct Input {
    /// Its place in the signature.
    given: usize,
    elements: Elements,
    /// Elements of one item.
    item: usize,
    /// The batch dimension first.
    shape: Vec<i64>,
}

impl OnnxExecutor {
    /// Loads a model from an ONNX file; `runtime` proves that ONNX Runtime is loaded.
    ///
    /// # Errors
    /// If the file cannot be read, is no valid ONNX model, or cannot be batched: its inputs and outputs must be tensors
    /// of a supported type whose first dimension is dynamic, or the same for all, and whose other dimensions are fixed.
    pub fn from_file(runtime: &Runtime, path: &Path, options: &OnnxOptions) -> Result<Self, LoadError> {
        Self::measured(runtime, || OnnxSession::from_file(runtime, path, options, &[]))
    }

    /// Loads a model from the bytes of an ONNX file; `name` is for error messages.
    ///
    /// # Errors
    /// As [`OnnxExecutor::from_file`].
    pub fn from_memory(runtime: &Runtime, name: &str, bytes: &[u8], options: &OnnxOptions) -> Result<Self, LoadError> {
        Self::measured(runtime, || OnnxSession::from_memory(runtime, name, bytes, options, &[]))
    }

    /// Sets the time limit of batches; they are also aborted once `stop` gives the model up.
    #[must_use]
    pub fn ended_by(mut self, stop: Stop, run_within: Duration) -> Self {
        self.stop = stop.watched();
        self.run_within = Some(run_within);
        self
    }

    /// Runs a batch of zeros of the largest size, so that the memory of batches is allocated, and measured, before
    /// requests wait.
    ///
    /// # Errors
    /// If the batch fails; a model may rightly reject zeros.
    pub fn warm_up(&mut self) -> Result<(), ExecuteError> {
        let items = self.batch_max;
        let zeros: Vec<_> =
            self.signature.inputs.iter().map(|spec| vec![0; spec.item_bytes() * items as usize]).collect();
        let tensors: Vec<_> = zeros.iter().map(Vec::as_slice).collect();
        self.run(&BatchInputs { items, tensors: &tensors, start: None }, &mut Vec::new())
    }

    /// Reserves this many bytes of the shared limit for the model, while it is loaded, in place of an earlier
    /// reservation.
    ///
    /// # Errors
    /// ONNX Runtime's error, if less is left: batches have used the memory, and the arena keeps it for the next ones.
    pub fn keep_clear_of_batches(&mut self, bytes: u64) -> Result<(), String> {
        self.kept_clear = None;
        if self.shares_batch_memory && bytes > 0 {
            let kept = batch_memory::keep_clear(&self.session, bytes).map_err(|error| error.to_string())?;
            self.kept_clear = Some(kept);
        }
        Ok(())
    }

    fn measured(runtime: &Runtime, load: impl FnOnce() -> Result<OnnxSession, LoadError>) -> Result<Self, LoadError> {
        let shares_batch_memory = runtime.shares_batch_memory();
        let before = resident_bytes();
        let OnnxSession { session, signature, batch_max, sizes, inputs, outputs, file_bytes } = load()?;
        // Memory that was free in this process before does not count as growth, but weights take at least their size
        // in the file.
        let static_bytes = resident_bytes().saturating_sub(before).max(file_bytes);
        let prepare = |OnnxInput { given, data_type, item_shape, .. }| {
            let item = item_shape.iter().map(|&d| d as usize).product();
            let shape = std::iter::once(0).chain(item_shape).collect();
            Input { given, elements: Elements::new(data_type), item, shape }
        };
        let inputs = inputs.into_iter().map(prepare).collect();
        let memory = MemoryUse { static_bytes, dynamic_bytes: 0 };
        let kept_clear = None;
        Ok(Self {
            kept_clear,
            session,
            shares_batch_memory,
            signature,
            batch_max,
            sizes,
            inputs,
            outputs,
            memory,
            largest_run: 0,
            stop: Stop::default(),
            run_within: None,
        })
    }
}

impl ModelExecutor for OnnxExecutor {
    fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        batch.check(&self.signature, self.batch_max)?;
        let items = batch.items;
        let failed = |error: ort::Error| failure(items, &error);
        let filled = self.sizes.as_ref().and_then(|sizes| sizes.filled(items)).unwrap_or(items);
        let before = (filled > self.largest_run).then(resident_bytes);

        for Input { given, elements, item, shape } in &mut self.inputs {
            elements.fill(batch.tensors[*given]);
            elements.repeat_last(*item, (filled - items) as usize);
            shape[0] = i64::from(filled);
        }
        let values: Vec<SessionInputValue<'_>> = self
            .inputs
            .iter()
            .map(|input| input.elements.as_input(&input.shape))
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        let begun = Instant::now();
        let options = Arc::new(RunOptions::new().map_err(failed)?);
        let ended = |reason| ExecuteError::Ended { items, took: begun.elapsed(), reason };
        let end = {
            let options = Arc::clone(&options);
            move || {
                if let Err(error) = options.terminate() {
                    tracing::error!(%error, "a run cannot be ended");
                }
            }
        };
        let run = self.stop.begin(self.run_within.map(|within| begun + within), end);
        let run = run.map_err(|_| ended(GIVEN_UP))?;
        let results = self.session.run_with_options(values.as_slice(), &*options).map_err(|error| {
            let is_overdue = self.run_within.is_some_and(|within| begun.elapsed() >= within);
            match run.is_ended() {
                true => ended(if is_overdue { OVERDUE } else { GIVEN_UP }),
                false => failure(items, &error),
            }
        })?;

        outputs.resize_with(self.signature.outputs.len(), Vec::new);
        for ((spec, &place), output) in self.signature.outputs.iter().zip(&self.outputs).zip(outputs.iter_mut()) {
            output.clear();
            append_bytes(&results[place], spec.data_type, output).map_err(failed)?;
            let expected = spec.item_bytes() * filled as usize;
            if output.len() != expected {
                let (name, given) = (spec.name.clone(), output.len());
                return Err(ExecuteError::OutputLength { name, given, expected, items: filled });
            }
            output.truncate(spec.item_bytes() * items as usize);
        }
        if let Some(before) = before {
            self.largest_run = filled;
            self.memory.dynamic_bytes += resident_bytes().saturating_sub(before);
        }
        Ok(())
    }

    fn batch_sizes(&self) -> Option<&BatchSizes> {
        self.sizes.as_ref()
    }

    fn memory(&self) -> Option<MemoryUse> {
        Some(self.memory)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn batch_max(&self) -> u32 {
        self.batch_max
    }

    fn kind(&self) -> &'static str {
        "onnxruntime-cpu"
    }
}

/// Why a batch was aborted whose model is unloaded or hangs.
const GIVEN_UP: &str = "the model is given up";
/// Why a batch was aborted that does not end.
const OVERDUE: &str = "it takes far longer than the model's profile says; it may never end";

/// ONNX Runtime has no error code for a lack of memory: these are messages of its arena and of the C++ library.
const NO_MEMORY: [&str; 3] = ["Available memory of ", "Failed to allocate memory", "std::bad_alloc"];

fn failure(items: u32, error: &ort::Error) -> ExecuteError {
    let reason = error.to_string();
    if NO_MEMORY.iter().any(|words| reason.contains(words)) {
        return ExecuteError::OutOfMemory { items, reason };
    }
    ExecuteError::Failed { items, reason }
}

impl fmt::Debug for OnnxExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnnxExecutor")
            .field("signature", &self.signature)
            .field("batch_max", &self.batch_max)
            .finish_non_exhaustive()
    }
}
