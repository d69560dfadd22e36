//! A loaded ONNX model, and the mapping of its tensors to the requested signature.

use std::fs;
use std::path::Path;

use ort::ep::ExecutionProviderDispatch;
use ort::session::Session;
use ort::session::builder::SessionBuilder;
use symphony_types::{DataType, PROFILE_BATCH_MAX, Signature};

use crate::batch_sizes::{BATCH_SIZES_KEY, BatchSizes};
use crate::model_signature;
use crate::runtime::Runtime;

/// A loaded model: the part that executors on the CPU and on GPUs share.
#[derive(Debug)]
pub struct OnnxSession {
    /// The runtime's own.
    pub session: Session,
    /// Inputs and outputs as requested.
    pub signature: Signature,
    /// The largest batch, in items.
    pub batch_max: u32,
    /// The batch sizes that it runs, if these are not all.
    pub sizes: Option<BatchSizes>,
    /// In the model's order.
    pub inputs: Vec<OnnxInput>,
    /// Where the model has each output of the signature.
    pub outputs: Vec<usize>,
    /// Length of the model's file.
    pub file_bytes: u64,
}

/// An input of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnnxInput {
    /// The model's name for it.
    pub name: String,
    /// Its place in the signature.
    pub given: usize,
    /// Type of its elements.
    pub data_type: DataType,
    /// The model's shape of it, without the batch.
    pub item_shape: Vec<i64>,
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
    /// The requested signature: other order, fewer outputs, or other shapes with as many elements. None for the
    /// model's own.
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

impl OnnxSession {
    /// Loads a model from an ONNX file, to run on the first of `providers` that can run each operator; on the CPU if
    /// there are none.
    ///
    /// # Errors
    /// If the file cannot be read, is no valid ONNX model, cannot be batched, or a provider that must be there is not.
    pub fn from_file(
        runtime: &Runtime,
        path: &Path,
        options: &OnnxOptions,
        providers: &[ExecutionProviderDispatch],
    ) -> Result<Self, LoadError> {
        let name = path.display().to_string();
        // ONNX Runtime says only "file does not exist" for all that can go wrong here.
        let bytes = match fs::File::open(path).and_then(|file| file.metadata()) {
            Ok(metadata) => metadata.len(),
            Err(error) => {
                return Err(LoadError { model: name, problem: format!("the file cannot be read: {error}") });
            }
        };
        Self::new(runtime, name, bytes, options, providers, |builder| builder.commit_from_file(path))
    }

    /// Loads a model from the bytes of an ONNX file; `name` is for error messages.
    ///
    /// # Errors
    /// As [`OnnxSession::from_file`].
    pub fn from_memory(
        runtime: &Runtime,
        name: &str,
        bytes: &[u8],
        options: &OnnxOptions,
        providers: &[ExecutionProviderDispatch],
    ) -> Result<Self, LoadError> {
        let file_bytes = bytes.len() as u64;
        Self::new(runtime, name.to_owned(), file_bytes, options, providers, |builder| builder.commit_from_memory(bytes))
    }

    fn new(
        runtime: &Runtime,
        model: String,
        file_bytes: u64,
        options: &OnnxOptions,
        providers: &[ExecutionProviderDispatch],
        commit: impl FnOnce(&mut SessionBuilder) -> ort::Result<Session>,
    ) -> Result<Self, LoadError> {
        let refuse = |problem: String| LoadError { model: model.clone(), problem };
        if !(1..=PROFILE_BATCH_MAX).contains(&options.batch_max) {
            return Err(refuse(format!("batch_max is {}; expected 1 to {PROFILE_BATCH_MAX}", options.batch_max)));
        }
        let build = || -> ort::Result<Session> {
            let mut builder = Session::builder(&runtime.environment)?
                .with_intra_threads(options.intra_threads)?
                .with_inter_threads(options.inter_threads)?
                .with_parallel_execution(options.inter_threads > 1)?
                .with_execution_providers(providers)?;
            if providers.is_empty() && runtime.shares_batch_memory() {
                builder = builder.with_env_allocators()?;
            }
            commit(&mut builder)
        };
        let session = build().map_err(|error| refuse(error.to_string()))?;
        let (has, fixed) = model_signature::read(session.inputs(), session.outputs()).map_err(refuse)?;
        let sizes = batch_sizes(&session, fixed).map_err(refuse)?;
        let signature = options.signature.clone().unwrap_or_else(|| has.clone());
        let place = |kind, expected: &[_], has: &[_]| model_signature::places(kind, expected, has).map_err(refuse);
        let given = place("input", &signature.inputs, &has.inputs)?;
        let outputs = place("output", &signature.outputs, &has.outputs)?;
        let mut inputs = Vec::with_capacity(has.inputs.len());
        for (index, spec) in has.inputs.iter().enumerate() {
            let given = given.iter().position(|&place| place == index);
            let given = given.ok_or_else(|| refuse(format!("input `{}` is asked for twice", spec.name)))?;
            let item_shape = spec.item_shape.iter().map(|&d| i64::from(d)).collect();
            inputs.push(OnnxInput { name: spec.name.clone(), given, data_type: spec.data_type, item_shape });
        }
        let batch_max = sizes.as_ref().map_or(options.batch_max, |sizes| sizes.largest().min(options.batch_max));
        Ok(Self { session, signature, batch_max, sizes, inputs, outputs, file_bytes })
    }
}

/// The sizes that the model runs, if these are not all.
fn batch_sizes(session: &Session, fixed: Option<u32>) -> Result<Option<BatchSizes>, String> {
    let declared = session.metadata().ok().and_then(|metadata| metadata.custom(BATCH_SIZES_KEY));
    match (fixed, declared) {
        (Some(fixed), _) => BatchSizes::fixed(fixed).map(Some),
        (None, Some(text)) => BatchSizes::parse(&text)
            .map(Some)
            .map_err(|problem| format!("its metadata `{BATCH_SIZES_KEY}` is {problem}")),
        (None, None) => Ok(None),
    }
}
