//! The port: what a backend asks of whatever runs its batches.

use std::fmt;
use std::time::{Duration, Instant};

use symphony_types::Signature;

use crate::batch_sizes::BatchSizes;

/// One model instance on one GPU.
///
/// An executor belongs to one thread at a time, its GPU's, and execution is serial: `&mut self` is invariant S1 at
/// the last place where it could be broken.
pub trait ModelExecutor: Send + fmt::Debug {
    /// Runs one batch and blocks the calling thread until it is done.
    ///
    /// `outputs` gets one contiguous buffer per output of the signature, in its order: the items in the order of the
    /// inputs, little-endian. Whatever it held before is overwritten and its memory is used again.
    ///
    /// # Errors
    /// If the batch does not fit the signature or the largest batch, or the execution fails. `outputs` then holds
    /// nothing of worth, and the executor can be used again.
    fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError>;

    /// What the model takes and gives.
    fn signature(&self) -> &Signature;

    /// The largest batch, in items.
    fn batch_max(&self) -> u32;

    /// The batch sizes that it runs, if these are not all: others are filled up to the next one, and take as long.
    fn batch_sizes(&self) -> Option<&BatchSizes> {
        None
    }

    /// The memory that it was measured to take; none if nobody can tell.
    fn memory(&self) -> Option<MemoryUse> {
        None
    }

    /// What runs here, for logs and metrics: a process never hides which executor it uses.
    fn kind(&self) -> &'static str;

    /// The same executor in steps, if it has a device to which the next batch's inputs can travel while this batch
    /// runs.
    fn in_steps(&mut self) -> Option<&mut dyn StagedExecutor> {
        None
    }

    /// What it takes of a device's own memory; none if its memory is the process's.
    fn device_memory(&self) -> Option<MemoryUse> {
        None
    }
}

/// An executor whose batches are staged, launched and finished, in that order, each by itself: while one runs, the next
/// one can be staged. Whoever uses it so does not call [`ModelExecutor::run`] in between.
pub trait StagedExecutor {
    /// Begins to bring a batch's inputs to where it will run, and returns.
    ///
    /// # Errors
    /// If the batch does not fit, there is no room, or the device fails. What was staged or launched before is still
    /// there.
    fn stage(&mut self, batch: &BatchInputs<'_>) -> Result<(), ExecuteError>;

    /// Batches that are staged and not launched.
    fn staged(&self) -> usize;

    /// Begins the batch that was staged first, and returns.
    ///
    /// # Errors
    /// If none is staged, or the device fails: what was staged or launched before is gone then.
    fn launch(&mut self) -> Result<(), ExecuteError>;

    /// Whether the batch that was launched first has ended; true if none was launched.
    ///
    /// # Errors
    /// If it has failed: what was staged or launched before is gone then, and there is nothing to finish.
    fn is_done(&mut self) -> Result<bool, ExecuteError>;

    /// Waits for the batch that was launched first, and gives its outputs as [`ModelExecutor::run`] does.
    ///
    /// # Errors
    /// If it has failed: what was staged or launched before is gone then.
    fn finish(&mut self, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError>;

    /// Forgets what was staged or launched, and returns when nothing of it is under way. For whoever caught a panic:
    /// nobody knows how far the batch came then, and one that is still counted would have the next one's answers be its
    /// own.
    fn reset(&mut self);
}

/// Memory of one executor, as the growth of its process: what else allocates meanwhile is counted too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes taken by loading it.
    pub static_bytes: u64,
    /// Further bytes taken by batches so far, which the runtime keeps for the next ones.
    pub dynamic_bytes: u64,
}

/// The inputs of one batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchInputs<'a> {
    /// How many items the batch has, at least one.
    pub items: u32,
    /// One contiguous buffer per input of the signature, in its order: `items` items each, little-endian.
    pub tensors: &'a [&'a [u8]],
    /// When the batch was to start, or when its inputs were there if that was later; `None` is "now". Executors that
    /// do real work start when they are called. The emulated one measures ℓ(b) from here, so that being called late
    /// does not add up from batch to batch.
    pub start: Option<Instant>,
}

/// Why a batch was not executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecuteError {
    /// There is nothing to run.
    #[error("the batch has no items; expected at least 1")]
    Empty,
    /// The batch is larger than the profile, and perhaps the memory, allows.
    #[error("the batch has {items} items; this executor takes at most {batch_max}")]
    TooLarge {
        /// Items given.
        items: u32,
        /// Items allowed.
        batch_max: u32,
    },
    /// A buffer is missing or superfluous.
    #[error("the batch has {given} input buffers; the model takes {expected}")]
    InputCount {
        /// Buffers given.
        given: usize,
        /// Buffers expected.
        expected: usize,
    },
    /// A buffer has the wrong length.
    #[error("input `{name}` has {given} bytes; expected {expected} for {items} items")]
    InputLength {
        /// The input's name.
        name: String,
        /// Bytes given.
        given: usize,
        /// Bytes expected.
        expected: usize,
        /// Items in the batch.
        items: u32,
    },
    /// The model gave something else than its signature promised.
    #[error("output `{name}` has {given} bytes; expected {expected} for {items} items")]
    OutputLength {
        /// The output's name.
        name: String,
        /// Bytes given.
        given: usize,
        /// Bytes expected.
        expected: usize,
        /// Items in the batch.
        items: u32,
    },
    /// It did not end by itself: it took too long, or its model was given up.
    #[error("{items} items were ended after {} s: {reason}", .took.as_secs())]
    Ended {
        /// Items in the batch.
        items: u32,
        /// How long they had run.
        took: Duration,
        /// Why.
        reason: &'static str,
    },
    /// There was not the memory for it.
    #[error("{items} items need more memory than there is for batches: {reason}")]
    OutOfMemory {
        /// Items in the batch.
        items: u32,
        /// The runtime's own words.
        reason: String,
    },
    /// The device will fail whatever comes next, of whatever model.
    #[error("execution of {items} items failed: {reason}")]
    DeviceLost {
        /// Items in the batch.
        items: u32,
        /// The device's own words.
        reason: String,
    },
    /// The runtime failed.
    #[error("execution of {items} items failed: {reason}")]
    Failed {
        /// Items in the batch.
        items: u32,
        /// The runtime's own words.
        reason: String,
    },
}

impl BatchInputs<'_> {
    /// Refuses a batch that no executor may start: the precondition that all of them share.
    ///
    /// # Errors
    /// If it is empty or too large, or its buffers are not those of the signature.
    pub fn check(&self, signature: &Signature, batch_max: u32) -> Result<(), ExecuteError> {
        if self.items == 0 {
            return Err(ExecuteError::Empty);
        }
        if self.items > batch_max {
            return Err(ExecuteError::TooLarge { items: self.items, batch_max });
        }
        if self.tensors.len() != signature.inputs.len() {
            return Err(ExecuteError::InputCount { given: self.tensors.len(), expected: signature.inputs.len() });
        }
        for (spec, bytes) in signature.inputs.iter().zip(self.tensors) {
            let expected = spec.item_bytes() * self.items as usize;
            if bytes.len() != expected {
                return Err(ExecuteError::InputLength {
                    name: spec.name.clone(),
                    given: bytes.len(),
                    expected,
                    items: self.items,
                });
            }
        }
        Ok(())
    }
}
