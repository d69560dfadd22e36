//! The port between a backend and the executors of its batches.

use std::fmt;
use std::time::{Duration, Instant};

use symphony_types::{CutDigest, Signature};

use crate::batch_sizes::BatchSizes;

/// One model instance on one GPU.
///
/// An executor belongs to one thread at a time, its GPU's, and execution is serial: `&mut self` enforces invariant S1
/// at the last place where it could be broken.
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

    /// Inputs and outputs of the model.
    fn signature(&self) -> &Signature;

    /// The largest batch, in items.
    fn batch_max(&self) -> u32;

    /// The batch sizes that it runs, if these are not all: others are padded to the next one, and take as long.
    fn batch_sizes(&self) -> Option<&BatchSizes> {
        None
    }

    /// Its measured memory; none if unknown.
    fn memory(&self) -> Option<MemoryUse> {
        None
    }

    /// The kind of executor, for logs and metrics: a process never hides which executor it uses.
    fn kind(&self) -> &'static str;

    /// Whether a batch takes its time from [`BatchInputs::start`] on, and not from the call, because it is emulated.
    fn counts_from_start(&self) -> bool {
        false
    }

    /// The same executor in steps, if it has a device to which the next batch's inputs can travel while this batch
    /// runs.
    fn in_steps(&mut self) -> Option<&mut dyn StagedExecutor> {
        None
    }

    /// The same executor among those that share its trunk, if it runs through one that others may share.
    fn in_family(&self) -> Option<&dyn SharingExecutor> {
        None
    }

    /// Its use of a device's own memory; none if it runs in the process's memory.
    fn device_memory(&self) -> Option<MemoryUse> {
        None
    }
}

/// An executor whose batches are staged, launched and finished as separate steps: while one batch runs, the next one
/// can be staged. Callers of these steps do not call [`ModelExecutor::run`] in between.
pub trait StagedExecutor {
    /// Starts copying a batch's inputs to the device, and returns.
    ///
    /// # Errors
    /// If the batch does not fit, there is no room, or the device fails. Earlier staged or launched batches stay.
    fn stage(&mut self, batch: &BatchInputs<'_>) -> Result<(), ExecuteError>;

    /// Batches that are staged and not launched.
    fn staged(&self) -> usize;

    /// Starts the oldest staged batch, and returns.
    ///
    /// # Errors
    /// If none is staged, or the device fails: then all staged and launched batches are lost.
    fn launch(&mut self) -> Result<(), ExecuteError>;

    /// Whether the oldest launched batch has ended; true if none was launched.
    ///
    /// # Errors
    /// If it has failed: then all staged and launched batches are lost, and there is nothing to finish.
    fn is_done(&mut self) -> Result<bool, ExecuteError>;

    /// Waits for the oldest launched batch, and returns its outputs as [`ModelExecutor::run`] does.
    ///
    /// # Errors
    /// If it has failed: then all staged and launched batches are lost.
    fn finish(&mut self, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError>;

    /// Drops all staged and launched batches, and returns when none is running. To be called after a caught panic: the
    /// progress of the batch is unknown then, and if it still counted, the next batch would get its answers.
    fn reset(&mut self);
}

/// An executor whose model runs through a trunk in memory that other models may share: batches may then have rows of
/// several of them.
pub trait SharingExecutor {
    /// The digest of the trunk; models with the same one may share it.
    fn trunk(&self) -> CutDigest;

    /// Where the trunk lies in memory: the same for models that share it.
    fn trunk_place(&self) -> usize;

    /// Memory of the trunk when this model was loaded.
    fn trunk_memory(&self) -> MemoryUse;

    /// What parts of a batch's time the trunk and the model's suffix take.
    fn shares(&self) -> PartShares;

    /// Runs one batch whose rows are those of the segments, one after another, the variants being models with this
    /// trunk. `outputs` gets, for each segment, one buffer per output of its model's signature.
    ///
    /// # Errors
    /// If a model is not loaded, or the segments are not those of the batch, and as [`ModelExecutor::run`].
    fn run_mixed(
        &self,
        batch: &BatchInputs<'_>,
        segments: &[Segment],
        outputs: &mut Vec<Vec<Vec<u8>>>,
    ) -> Result<(), ExecuteError>;
}

/// Neighbouring rows of a batch that are of one variant: the rows of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Index of the model among those that the executor runs with its trunk.
    pub variant: u32,
    /// How many rows.
    pub rows: u32,
}

/// The parts of a batch's time that a model's trunk and its suffix take, in millionths: each the larger one of its
/// parts at one row and at the largest batch. Of times that are lines over the rows no batch between takes more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartShares {
    /// Largest share that the trunk takes.
    pub trunk: u32,
    /// Largest share that the suffix takes.
    pub suffix: u32,
}

impl PartShares {
    /// All of the time.
    pub const ALL: u32 = 1_000_000;

    /// Of these times.
    #[must_use]
    pub fn of(trunk: Duration, suffix: Duration) -> Self {
        // A clock that stands still would make both nothing.
        let (trunk, suffix) = (trunk.as_nanos().max(1), suffix.as_nanos().max(1));
        let share = |part: u128| (part * u128::from(Self::ALL)).div_ceil(trunk + suffix) as u32;
        Self { trunk: share(trunk), suffix: share(suffix) }
    }

    /// The larger share of each part.
    #[must_use]
    pub fn larger_of(self, other: Self) -> Self {
        Self { trunk: self.trunk.max(other.trunk), suffix: self.suffix.max(other.suffix) }
    }
}

/// Memory of one executor, measured as growth of its process: other allocations in that time count too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes taken by loading it.
    pub static_bytes: u64,
    /// Further bytes taken by batches so far, which the runtime keeps for the next ones.
    pub dynamic_bytes: u64,
}

/// What one batch is run on.
#[derive(Clone, Copy, Debug)]
pub struct BatchInputs<'a> {
    /// How many items the batch has, at least one.
    pub items: u32,
    /// One contiguous buffer per input of the signature, in its order: `items` items each, little-endian.
    pub tensors: &'a [&'a [u8]],
    /// When the batch started, as the caller counts: its inputs had arrived, and no other batch ran on its GPU. `None`
    /// is "now". Real executors start when they are called. The emulated one measures ℓ(b) from here, so that a
    /// call that is a little late is none. To one that is only staged it means nothing.
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
    /// The model's output differs from its signature.
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
    /// It was aborted: it took too long, or its model was given up.
    #[error("{items} items were ended after {} s: {reason}", .took.as_secs())]
    Ended {
        /// Items in the batch.
        items: u32,
        /// How long they had run.
        took: Duration,
        /// The reason, for messages.
        reason: &'static str,
    },
    /// There was not enough memory.
    #[error("{items} items need more memory than there is for batches: {reason}")]
    OutOfMemory {
        /// Items in the batch.
        items: u32,
        /// The runtime's own words.
        reason: String,
    },
    /// The device is permanently failed, for every model.
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
    /// Refuses a batch that no executor may start: the precondition of all executors.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_counts_with_its_larger_share() {
        let of = |trunk, suffix| PartShares::of(Duration::from_micros(trunk), Duration::from_micros(suffix));
        assert_eq!(of(90, 10), PartShares { trunk: 900_000, suffix: 100_000 });
        assert_eq!(of(900, 300), PartShares { trunk: 750_000, suffix: 250_000 });
        assert_eq!(of(90, 10).larger_of(of(900, 300)), PartShares { trunk: 900_000, suffix: 250_000 });
        assert_eq!(of(2, 1).trunk + of(2, 1).suffix, PartShares::ALL + 1, "rounded up");
        assert_eq!(of(0, 0), PartShares { trunk: 500_000, suffix: 500_000 });
    }
}
