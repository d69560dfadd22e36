//! Parts on the CPU.

use std::ops::Range;
use std::time::Duration;

use symphony_types::{Signature, TensorSpec};

use super::family_part::{FamilyPart, PartLoader};
use crate::batch_sizes::BatchSizes;
use crate::onnx::OnnxExecutor;
use crate::onnx_session::{LoadError, OnnxOptions};
use crate::port::{BatchInputs, ExecuteError, MemoryUse, ModelExecutor};
use crate::runtime::Runtime;
use crate::stop::Stop;

/// Loads parts into the memory of the process.
#[derive(Clone, Debug)]
pub struct CpuLoader {
    runtime: Runtime,
    options: OnnxOptions,
}

/// A part that is run on the calling thread: it has ended when it has begun.
#[derive(Debug)]
pub struct CpuPart {
    executor: OnnxExecutor,
    /// The outputs of its last batch.
    given: Vec<Vec<u8>>,
    /// Rows of a trunk's output that were not neighbours, for the suffix that takes them. Reused.
    gathered: Vec<u8>,
}

impl CpuLoader {
    /// With these options for each part; their signature does not count.
    #[must_use]
    pub fn new(runtime: &Runtime, options: &OnnxOptions) -> Self {
        Self { runtime: runtime.clone(), options: OnnxOptions { signature: None, ..options.clone() } }
    }
}

impl PartLoader for CpuLoader {
    type Part = CpuPart;

    fn load(&self, name: &str, bytes: &[u8]) -> Result<CpuPart, LoadError> {
        let executor = OnnxExecutor::from_memory(&self.runtime, name, bytes, &self.options)?;
        Ok(CpuPart { executor, given: Vec::new(), gathered: Vec::new() })
    }
}

impl ModelExecutor for CpuPart {
    fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        self.executor.run(batch, outputs)
    }

    fn signature(&self) -> &Signature {
        self.executor.signature()
    }

    fn batch_max(&self) -> u32 {
        self.executor.batch_max()
    }

    fn batch_sizes(&self) -> Option<&BatchSizes> {
        self.executor.batch_sizes()
    }

    fn memory(&self) -> Option<MemoryUse> {
        self.executor.memory()
    }

    fn kind(&self) -> &'static str {
        self.executor.kind()
    }
}

impl FamilyPart for CpuPart {
    const PREPARES_SIZES: bool = false;

    fn ended_by(self, stop: Stop, run_within: Duration) -> Self {
        let Self { executor, given, gathered } = self;
        Self { executor: executor.ended_by(stop, run_within), given, gathered }
    }

    fn keep_clear_of_batches(&mut self) -> Result<(), String> {
        let bytes = self.memory().unwrap_or_default().static_bytes;
        self.executor.keep_clear_of_batches(bytes)
    }

    fn begin_trunk(&mut self, batch: &BatchInputs<'_>) -> Result<(), ExecuteError> {
        self.executor.run(batch, &mut self.given)
    }

    fn begin_suffix(&mut self, trunk: &mut Self, rows: &[Range<usize>]) -> Result<(), ExecuteError> {
        let row_bytes = trunk.signature().outputs.first().map_or(0, TensorSpec::item_bytes);
        let given = trunk.given.first().map(Vec::as_slice).unwrap_or_default();
        let taken = |rows: &Range<usize>| given.get(rows.start * row_bytes..rows.end * row_bytes).unwrap_or_default();
        let tensor = if let [rows] = rows {
            taken(rows)
        } else {
            trunk.gathered.clear();
            rows.iter().for_each(|rows| trunk.gathered.extend_from_slice(taken(rows)));
            trunk.gathered.as_slice()
        };
        let items = rows.iter().map(|rows| rows.len() as u32).sum();
        self.executor.run(&BatchInputs { items, tensors: &[tensor], start: None }, &mut self.given)
    }

    fn wait(&mut self) -> Result<(), ExecuteError> {
        Ok(())
    }

    fn end_suffix(&mut self, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        // What `outputs` held is the memory of the next batch's.
        std::mem::swap(outputs, &mut self.given);
        Ok(())
    }
}
