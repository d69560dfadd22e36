//! Runs ONNX models on the CPU by ONNX Runtime.

use std::fmt;
use std::fs;
use std::path::Path;

use ort::session::{Session, SessionInputValue};
use symphony_types::{PROFILE_BATCH_MAX, Signature};

use crate::batch_sizes::{BATCH_SIZES_KEY, BatchSizes};
use crate::element::{Elements, append_bytes};
use crate::model_signature;
use crate::port::{BatchInputs, ExecuteError, MemoryUse, ModelExecutor};
use crate::resources::resident_bytes;
use crate::runtime::Runtime;

/// A model in the process, run on the calling thread.
pub struct OnnxExecutor {
    session: Session,
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

/// How a model is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnnxOptions {
    /// The largest batch accepted, in items: 1..=[`PROFILE_BATCH_MAX`].
    pub batch_max: u32,
    /// Threads that share one operator's work. One, the calling thread, models one accelerator per executor.
    pub intra_threads: usize,
    /// Threads for independent operators.
    pub inter_threads: usize,
    /// What is asked of it: its tensors in another order, without some outputs, or in shapes of as many elements. None for all that
    /// the model has, as it has it.
    pub signature: Option<Signature>,
}

/// Why a model was not loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("model `{model}` cannot be used: {problem}")]
pub struct LoadError {
    /// The file, or the name the caller gave.
    pub model: String,
    /// What is wrong, and what was expected.
    pub problem: String,
}

impl Default for OnnxOptions {
    fn default() -> Self {
        Self { batch_max: 64, intra_threads: 1, inter_threads: 1, signature: None }
    }
}

impl OnnxExecutor {
    /// Loads a model from an ONNX file; `runtime` is proof that ONNX Runtime is there.
    ///
    /// # Errors
    /// If the file cannot be read, is no valid ONNX model, or cannot be batched: its inputs and outputs must be tensors
    /// of a supported type whose first dimension is dynamic, or the same for all, and whose other dimensions are fixed.
    pub fn from_file(runtime: &Runtime, path: &Path, options: &OnnxOptions) -> Result<Self, LoadError> {
        let name = path.display().to_string();
        // ONNX Runtime says only "file does not exist" for all that can go wrong here.
        let bytes = match fs::File::open(path).and_then(|file| file.metadata()) {
            Ok(metadata) => metadata.len(),
            Err(error) => {
                return Err(LoadError { model: name, problem: format!("the file cannot be read: {error}") });
            }
        };
        Self::new(runtime, name, bytes, options, |builder| builder.commit_from_file(path))
    }

    /// Loads a model from the bytes of an ONNX file; `name` is for error messages.
    ///
    /// # Errors
    /// As [`OnnxExecutor::from_file`].
    pub fn from_memory(runtime: &Runtime, name: &str, bytes: &[u8], options: &OnnxOptions) -> Result<Self, LoadError> {
        Self::new(runtime, name.to_owned(), bytes.len() as u64, options, |builder| builder.commit_from_memory(bytes))
    }

    fn new(
        runtime: &Runtime,
        model: String,
        file_bytes: u64,
        options: &OnnxOptions,
        commit: impl FnOnce(&mut ort::session::builder::SessionBuilder) -> ort::Result<Session>,
    ) -> Result<Self, LoadError> {
        let refuse = |problem: String| LoadError { model: model.clone(), problem };
        if !(1..=PROFILE_BATCH_MAX).contains(&options.batch_max) {
            return Err(refuse(format!("batch_max is {}; expected 1 to {PROFILE_BATCH_MAX}", options.batch_max)));
        }
        let build = || -> ort::Result<Session> {
            let mut builder = Session::builder(&runtime.environment)?
                .with_intra_threads(options.intra_threads)?
                .with_inter_threads(options.inter_threads)?
                .with_parallel_execution(options.inter_threads > 1)?;
            commit(&mut builder)
        };
        let before = resident_bytes();
        let session = build().map_err(|error| refuse(error.to_string()))?;
        // Memory that was free in this process before does not show as growth, but weights take no less than they do in a file.
        let static_bytes = resident_bytes().saturating_sub(before).max(file_bytes);
        let (has, fixed) = model_signature::read(session.inputs(), session.outputs()).map_err(refuse)?;
        let sizes = batch_sizes(&session, fixed).map_err(refuse)?;
        let signature = options.signature.clone().unwrap_or_else(|| has.clone());
        let place = |kind, asked: &[_], has: &[_]| model_signature::places(kind, asked, has).map_err(refuse);
        let given = place("input", &signature.inputs, &has.inputs)?;
        let outputs = place("output", &signature.outputs, &has.outputs)?;
        let mut inputs = Vec::with_capacity(has.inputs.len());
        for (index, spec) in has.inputs.iter().enumerate() {
            let elements = Elements::new(spec.data_type)
                .ok_or_else(|| refuse(format!("input `{}` has type {}, not supported", spec.name, spec.data_type)))?;
            let given = given.iter().position(|&place| place == index);
            let given = given.ok_or_else(|| refuse(format!("input `{}` is asked for twice", spec.name)))?;
            let shape = std::iter::once(0).chain(spec.item_shape.iter().map(|&d| i64::from(d))).collect();
            inputs.push(Input { given, elements, item: spec.item_bytes() / spec.data_type.size_bytes(), shape });
        }
        let batch_max = sizes.as_ref().map_or(options.batch_max, |sizes| sizes.largest().min(options.batch_max));
        let memory = MemoryUse { static_bytes, dynamic_bytes: 0 };
        Ok(Self { session, signature, batch_max, sizes, inputs, outputs, memory, largest_run: 0 })
    }
}

/// The sizes that the model runs, if these are not all.
fn batch_sizes(session: &Session, fixed: Option<u32>) -> Result<Option<BatchSizes>, String> {
    let said = session.metadata().ok().and_then(|metadata| metadata.custom(BATCH_SIZES_KEY));
    match (fixed, said) {
        (Some(fixed), _) => BatchSizes::fixed(fixed).map(Some),
        (None, Some(text)) => BatchSizes::parse(&text)
            .map(Some)
            .map_err(|problem| format!("its metadata `{BATCH_SIZES_KEY}` is {problem}")),
        (None, None) => Ok(None),
    }
}

impl ModelExecutor for OnnxExecutor {
    fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        batch.check(&self.signature, self.batch_max)?;
        let items = batch.items;
        let failed = |error: ort::Error| ExecuteError::Failed { items, reason: error.to_string() };
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
        let results = self.session.run(values.as_slice()).map_err(failed)?;

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

impl fmt::Debug for OnnxExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnnxExecutor")
            .field("signature", &self.signature)
            .field("batch_max", &self.batch_max)
            .finish_non_exhaustive()
    }
}
