//! Why models form no family, and why a batch of one was not run.

use crate::onnx_session::LoadError;
use crate::port::ExecuteError;
use crate::profile::Dependence;

/// Why a model is in no family. It may still be served alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FamilyError {
    /// There is none to begin with.
    #[error("the family has no model; expected at least one")]
    Empty,
    /// Its file cannot be read.
    #[error("model `{model}` cannot be taken apart: {problem}")]
    File {
        /// Name of the model.
        model: String,
        /// What is wrong.
        problem: String,
    },
    /// It cannot be read, or not be cut.
    #[error("model `{model}` cannot be taken apart: {problem}")]
    Graph {
        /// Name of the model.
        model: String,
        /// What is wrong.
        problem: symphony_onnx_graph::Error,
    },
    /// The models have no cut point in common.
    #[error("{} models share no trunk, the first being `{first}`; expected a value that all compute alike and can be cut at", .models)]
    NoTrunk {
        /// The first model.
        first: String,
        /// How many there are.
        models: usize,
    },
    /// The family's trunk is not in it.
    #[error("model `{model}` does not begin with the trunk of the family")]
    OtherTrunk {
        /// Name of the model.
        model: String,
    },
    /// ONNX Runtime refuses a part of it, or the whole.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Its suffix cannot take what the trunk gives.
    #[error("the suffix of model `{model}` takes {takes}; the trunk gives {gives}")]
    Suffix {
        /// Name of the model.
        model: String,
        /// What the suffix takes.
        takes: String,
        /// What the trunk gives.
        gives: String,
    },
    /// Its suffix gives something else than the whole model.
    #[error("the suffix of model `{model}` has other outputs than the model")]
    Outputs {
        /// Name of the model.
        model: String,
    },
    /// Its parts cannot take its place here.
    #[error("model `{model}` is not run in parts: {problem}")]
    Unfit {
        /// Name of the model.
        model: String,
        /// What is wrong with it.
        problem: String,
    },
    /// It does not run, whole or in parts, on any of the inputs that it is compared on.
    #[error("model `{model}` cannot be compared with its parts: {problem}")]
    Incomparable {
        /// Name of the model.
        model: String,
        /// The runtime's error.
        problem: ExecuteError,
    },
    /// Its rows depend on each other: they would on those of other models.
    #[error("model `{model}` mixes the rows of a batch: {dependence}")]
    Dependent {
        /// Name of the model.
        model: String,
        /// Which row.
        dependence: Dependence,
    },
    /// In parts it answers differently than whole.
    #[error("output `{output}` of model `{model}`, row {row} of {rows}, is {whole} whole and {parts} in parts")]
    Differs {
        /// Name of the model.
        model: String,
        /// Name of the output that differs.
        output: String,
        /// The row, from 0.
        row: u32,
        /// Rows in the batch.
        rows: u32,
        /// The first element that differs, of the whole model.
        whole: String,
        /// The same of trunk and suffix.
        parts: String,
    },
}

/// Why a batch of a family was not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FamilyRunError {
    /// The segments are not those of the batch.
    #[error("the segments have {rows} rows; the batch has {items}")]
    Segments {
        /// Rows of all segments.
        rows: u64,
        /// Rows of the batch.
        items: u32,
    },
    /// A segment is of a variant that is not loaded.
    #[error("variant {variant} is not loaded")]
    NotLoaded {
        /// The variant that the segment names.
        variant: u32,
    },
    /// The trunk or a suffix failed.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
}
