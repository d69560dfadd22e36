//! What a family needs of the executors of its parts.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use crate::onnx_session::LoadError;
use crate::port::{BatchInputs, ExecuteError, ModelExecutor};
use crate::stop::Stop;

/// A trunk, a suffix, or a whole model to compare them with. What a trunk gives stays with it, in the memory where it
/// was computed, and suffixes take their rows from there.
pub trait FamilyPart: ModelExecutor + Sized {
    /// Whether the runtime prepares itself for each size of a batch when it first sees one: that is done at the load.
    const PREPARES_SIZES: bool;

    /// Ends its batches once `stop` gives the model up, or when they have taken that long, if it can end batches.
    #[must_use]
    fn ended_by(self, stop: Stop, run_within: Duration) -> Self;

    /// Reserves its memory against batches, where these share one.
    ///
    /// # Errors
    /// If there is not enough.
    fn keep_clear_of_batches(&mut self) -> Result<(), String>;

    /// Begins to run a trunk on a batch; what it gives takes the place of what it gave before.
    ///
    /// # Errors
    /// As [`ModelExecutor::run`].
    fn begin_trunk(&mut self, batch: &BatchInputs<'_>) -> Result<(), ExecuteError>;

    /// Begins to run a suffix on rows of what the trunk gives: these ranges, one after another. A single range is taken
    /// where it lies, without a copy, if the runtime can read it there.
    ///
    /// # Errors
    /// If these are not rows of the trunk's batch, the suffix does not take them, or it fails.
    fn begin_suffix(&mut self, trunk: &mut Self, rows: &[Range<usize>]) -> Result<(), ExecuteError>;

    /// Waits for what has begun.
    ///
    /// # Errors
    /// If it failed.
    fn wait(&mut self) -> Result<(), ExecuteError>;

    /// Waits for the suffix that has begun, and returns its outputs as [`ModelExecutor::run`] does.
    ///
    /// # Errors
    /// If it failed.
    fn end_suffix(&mut self, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError>;
}

/// Loads parts to one place: the memory of the process, or a device.
pub trait PartLoader: Send + fmt::Debug {
    /// What runs a part there.
    type Part: FamilyPart;

    /// Loads a part from the bytes of an ONNX file; `name` is for error messages.
    ///
    /// # Errors
    /// If it cannot be loaded there.
    fn load(&self, name: &str, bytes: &[u8]) -> Result<Self::Part, LoadError>;
}
