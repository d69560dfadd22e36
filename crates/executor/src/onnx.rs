//! Runs ONNX models on the CPU by ONNX Runtime.

use std::fmt;
use std::fs;
use std::path::Path;

use ort::session::{Session, SessionInputValue};
use symphony_types::{PROFILE_BATCH_MAX, Signature};

use crate::element::{Elements, append_bytes};
use crate::model_signature;
use crate::port::{BatchInputs, ExecuteError, ModelExecutor};
use crate::runtime::Runtime;

/// A model in the process, run on the calling thread.
pub struct OnnxExecutor {
    session: Session,
    signature: Signature,
    batch_max: u32,
    /// One per input: its typed buffer, and its shape with the batch dimension first.
    inputs: Vec<(Elements, Vec<i64>)>,
}

/// How a model is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnnxOptions {
    /// The largest batch accepted, in items: 1..=[`PROFILE_BATCH_MAX`].
    pub batch_max: u32,
    /// Threads that share one operator's work. One, the calling thread, models one accelerator per executor.
    pub intra_threads: usize,
    /// Threads for independent operators.
    pub inter_threads: usize,
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
        Self { batch_max: 64, intra_threads: 1, inter_threads: 1 }
    }
}

impl OnnxExecutor {
    /// Loads a model from an ONNX file; `runtime` is proof that ONNX Runtime is there.
    ///
    /// # Errors
    /// If the file cannot be read, is no valid ONNX model, or cannot be batched: its inputs and outputs must be tensors
    /// of a supported type whose first dimension is dynamic and whose other dimensions are fixed.
    pub fn from_file(runtime: &Runtime, path: &Path, options: &OnnxOptions) -> Result<Self, LoadError> {
        let name = path.display().to_string();
        // ONNX Runtime says only "file does not exist" for all that can go wrong here.
        if let Err(error) = fs::File::open(path) {
            return Err(LoadError { model: name, problem: format!("the file cannot be read: {error}") });
        }
        Self::new(runtime, name, options, |builder| builder.commit_from_file(path))
    }

    /// Loads a model from the bytes of an ONNX file; `name` is for error messages.
    ///
    /// # Errors
    /// As [`OnnxExecutor::from_file`].
    pub fn from_memory(runtime: &Runtime, name: &str, bytes: &[u8], options: &OnnxOptions) -> Result<Self, LoadError> {
        Self::new(runtime, name.to_owned(), options, |builder| builder.commit_from_memory(bytes))
    }

    fn new(
        runtime: &Runtime,
        model: String,
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
        let session = build().map_err(|error| refuse(error.to_string()))?;
        let signature = model_signature::read(session.inputs(), session.outputs()).map_err(refuse)?;
        let mut inputs = Vec::with_capacity(signature.inputs.len());
        for spec in &signature.inputs {
            let elements = Elements::new(spec.data_type)
                .ok_or_else(|| refuse(format!("input `{}` has type {}, not supported", spec.name, spec.data_type)))?;
            let shape = std::iter::once(0).chain(spec.item_shape.iter().map(|&d| i64::from(d))).collect();
            inputs.push((elements, shape));
        }
        Ok(Self { session, signature, batch_max: options.batch_max, inputs })
    }
}

impl ModelExecutor for OnnxExecutor {
    fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        batch.check(&self.signature, self.batch_max)?;
        let items = batch.items;
        let failed = |error: ort::Error| ExecuteError::Failed { items, reason: error.to_string() };

        for ((elements, shape), bytes) in self.inputs.iter_mut().zip(batch.tensors) {
            elements.fill(bytes);
            shape[0] = i64::from(items);
        }
        let values: Vec<SessionInputValue<'_>> = self
            .inputs
            .iter()
            .map(|(elements, shape)| elements.as_input(shape))
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        let results = self.session.run(values.as_slice()).map_err(failed)?;

        outputs.resize_with(self.signature.outputs.len(), Vec::new);
        for ((spec, (_, value)), output) in self.signature.outputs.iter().zip(results.iter()).zip(outputs.iter_mut()) {
            output.clear();
            append_bytes(&value, spec.data_type, output).map_err(failed)?;
            let expected = spec.item_bytes() * items as usize;
            if output.len() != expected {
                return Err(ExecuteError::OutputLength {
                    name: spec.name.clone(),
                    given: output.len(),
                    expected,
                    items,
                });
            }
        }
        Ok(())
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
