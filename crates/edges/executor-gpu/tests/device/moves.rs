//! Heads on one trunk that only move numbers within the device's memory, which a double of a GPU does as well as a GPU:
//! the trunk swaps the halves of each row, and each head takes some numbers of that.

#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::{CudaSlice, DevicePtr, result};
use symphony_executor::{LoadError, PartLoader};
use symphony_executor_gpu::overlap::{DeviceError, Lane};
use symphony_executor_gpu::{Cuda, CudaPart, GpuLoadError, PartProgram};
use symphony_types::{DataType, Signature, TensorSpec};

/// The largest batch, in rows.
pub(crate) const ROWS_MAX: u32 = 16;
/// What a trunk's weights take of the GPU's memory, and those of a head.
pub(crate) const TRUNK_BYTES: usize = 8 << 20;
pub(crate) const HEAD_BYTES: usize = 256 << 10;
/// What a suffix that is slow once copies from the host first: its weights, in memory that is not pinned.
static WEIGHTS: [u8; HEAD_BYTES] = [0; HEAD_BYTES];
/// Bytes of a number.
const NUMBER: usize = 4;
/// No head.
const NONE: u32 = u32::MAX;

/// Loads parts by their names, which end in the number of the head; what is in the files does not matter.
#[derive(Clone, Debug)]
pub(crate) struct MovesLoader {
    gpu: Cuda,
    /// Numbers in a row.
    width: usize,
    /// The head whose suffix refuses its next batch.
    refuses: Arc<AtomicU32>,
    /// The head whose suffix is slow to begin its next batch.
    slow: Arc<AtomicU32>,
}

/// A part, which gives a row of so many numbers for one of another width.
#[derive(Debug)]
pub(crate) struct Moves {
    stretches: Vec<Stretch>,
    /// Numbers in a row that it takes, and in one that it gives.
    widths: (usize, usize),
    /// The number of the head, of a suffix.
    suffix: Option<u32>,
    refuses: Arc<AtomicU32>,
    slow: Arc<AtomicU32>,
    given: CudaSlice<u8>,
    weights: CudaSlice<u8>,
    gpu: Cuda,
}

/// Numbers of a row that stay together.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: usize,
    to: usize,
    count: usize,
}

/// Numbers in an answer of a head.
pub(crate) fn classes(head: u32) -> usize {
    2 + head as usize % 5
}

impl MovesLoader {
    pub(crate) fn new(gpu: &Cuda, width: usize) -> Self {
        let none = || Arc::new(AtomicU32::new(NONE));
        Self { gpu: gpu.clone(), width, refuses: none(), slow: none() }
    }

    /// The suffix of this head refuses its next batch.
    pub(crate) fn refuse_once(&self, head: u32) {
        self.refuses.store(head, Ordering::Relaxed);
    }

    /// The suffix of this head copies its weights from the host before it reads the rows of its next batch.
    pub(crate) fn slow_down_once(&self, head: u32) {
        self.slow.store(head, Ordering::Relaxed);
    }

    /// The answer of a head to these rows, reckoned by the host.
    pub(crate) fn answer(&self, head: u32, rows: &[u8]) -> Vec<u8> {
        let (whole, mut answers) = (self.whole(head), Vec::new());
        for row in rows.chunks_exact(self.width * NUMBER) {
            whole.iter().for_each(|&from| answers.extend_from_slice(&row[from * NUMBER..][..NUMBER]));
        }
        answers
    }

    /// Which number of the row that it is given each number is of the row that it gives.
    fn trunk(&self) -> Vec<usize> {
        (0..self.width).map(|to| (to + self.width / 2) % self.width).collect()
    }

    fn suffix(&self, head: u32) -> Vec<usize> {
        (0..classes(head)).map(|to| (to + head as usize) % self.width).collect()
    }

    fn whole(&self, head: u32) -> Vec<usize> {
        let trunk = self.trunk();
        self.suffix(head).into_iter().map(|from| trunk[from]).collect()
    }

    fn moves(&self, gpu: &Cuda, name: &str) -> Result<(Moves, Signature, u32), GpuLoadError> {
        let last = name.rsplit('-').next().unwrap_or_default();
        let head = last.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap();
        let (from, suffix, bytes) = match name.split_once(" of ") {
            Some(("trunk", _)) => (self.trunk(), None, TRUNK_BYTES),
            Some(_) => (self.suffix(head), Some(head), HEAD_BYTES),
            None => (self.whole(head), None, TRUNK_BYTES + HEAD_BYTES),
        };
        let memory = |bytes| gpu.lane(Lane::Compute).alloc_zeros::<u8>(bytes).map_err(|error| failed(&error));
        let (given, weights) = (memory(from.len() * NUMBER * ROWS_MAX as usize)?, memory(bytes)?);
        let tensor = |name: &str, width: usize| TensorSpec {
            name: name.into(),
            data_type: DataType::Fp32,
            item_shape: vec![width as u32],
        };
        let (inputs, outputs) = (vec![tensor("INPUT0", self.width)], vec![tensor("OUTPUT0", from.len())]);
        let (stretches, widths) = (stretches(&from), (self.width, from.len()));
        let (refuses, slow, gpu) = (Arc::clone(&self.refuses), Arc::clone(&self.slow), gpu.clone());
        let moves = Moves { stretches, widths, suffix, refuses, slow, given, weights, gpu };
        Ok((moves, Signature { inputs, outputs }, ROWS_MAX))
    }
}

impl PartLoader for MovesLoader {
    type Part = CudaPart<Moves>;

    fn load(&self, name: &str, _: &[u8]) -> Result<Self::Part, LoadError> {
        let loaded = self.gpu.load_part("moves", |gpu| self.moves(gpu, name));
        loaded.map_err(|error| LoadError { model: name.to_owned(), problem: error.to_string() })
    }
}

fn stretches(from: &[usize]) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for (to, &from) in from.iter().enumerate() {
        match stretches.last_mut() {
            Some(last) if last.from + last.count == from => last.count += 1,
            _ => stretches.push(Stretch { from, to, count: 1 }),
        }
    }
    stretches
}

fn failed(error: &dyn std::error::Error) -> DeviceError {
    DeviceError::Failed(error.to_string())
}

// SAFETY: it reads rows of the width that it takes, in one lane; `given` has room for the largest batch, and stays.
unsafe impl PartProgram for Moves {
    unsafe fn enqueue(&mut self, inputs: &[u64], rows: u32) -> Result<(), DeviceError> {
        let is_told = |to: &AtomicU32| {
            let is_meant = |head| to.compare_exchange(head, NONE, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            self.suffix.is_some_and(is_meant)
        };
        if is_told(&self.refuses) {
            return Err(DeviceError::Failed("planted".into()));
        }
        let lane = self.gpu.lane(Lane::Compute);
        if is_told(&self.slow) {
            let to = self.weights.device_ptr(lane).0;
            // SAFETY: `weights` of a suffix is as long as `WEIGHTS`, which stays, and it is freed in this lane's order.
            let copied = unsafe { result::memcpy_htod_async(to, &WEIGHTS, lane.cu_stream()) };
            copied.map_err(|error| failed(&error))?;
        }
        let begin = self.given.device_ptr(lane).0;
        let (takes, gives) = self.widths;
        for row in 0..rows as usize {
            for &Stretch { from, to, count } in &self.stretches {
                let from = inputs[0] + ((row * takes + from) * NUMBER) as u64;
                let to = begin + ((row * gives + to) * NUMBER) as u64;
                // SAFETY: `from` is in the input's rows, by the caller's promise, and `to` in those of `given`.
                let moved = unsafe { result::memcpy_dtod_async(to, from, count * NUMBER, lane.cu_stream()) };
                moved.map_err(|error| failed(&error))?;
            }
        }
        Ok(())
    }

    fn output(&mut self, _: usize) -> Result<u64, DeviceError> {
        Ok(self.given.device_ptr(self.gpu.lane(Lane::Compute)).0)
    }
}
