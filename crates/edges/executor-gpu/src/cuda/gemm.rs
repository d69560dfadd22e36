//! Chains of matrix products with cuBLASLt that take as long as a profile says.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use symphony_executor::{BatchInputs, ExecuteError, ModelExecutor, StagedExecutor};
use symphony_types::{LatencyProfile, Nanos, Signature};

use super::blas::{Blas, Square};
use super::device::{CudaDevice, Program, Tensors};
use super::errors::device_error;
use super::{Cuda, GpuLoadError};
use crate::gemm::{Calibration, Chain, LINK_SIZES, Step, TOLERANCE, Trial};
use crate::overlap::{Device, DeviceError, Lane, SLOTS};
use crate::staged_model::{Answers, StagedModel, Turn};

/// Counted runs of each trial, and warm-up runs before them: the first run of a size makes cuBLASLt choose a kernel.
const RUNS: usize = 5;
const WARMUP_RUNS: usize = 2;
/// Numbers that are drawn for a matrix; a larger one has copies of them. Calibration multiplies the same matrices, so
/// ℓ(b) holds whatever they take.
const DRAWN_MAX: usize = 1 << 20;

/// A GPU that takes ℓ(b) by multiplying matrices, and answers with checksums of its inputs: like an emulated one, but
/// with real copies and a real queue.
pub type GemmModel = StagedModel<CudaDevice<GemmProgram>>;

/// The matrices of all links, and their multiplication.
pub(super) struct Products {
    blas: Blas,
    /// By place in [`LINK_SIZES`].
    matrices: Vec<Matrices>,
}

struct Matrices {
    square: Square,
    weights: CudaSlice<f32>,
    /// Every link multiplies these. Feeding each result into the next product would leave the range of numbers within
    /// days, and products of infinities may take a different time.
    given: CudaSlice<f32>,
    /// Every link writes these. Links do not overlap: a lane is serial.
    result: CudaSlice<f32>,
}

/// A chain for each batch size, and the inputs handed on.
pub struct GemmProgram {
    cuda: Cuda,
    products: Arc<Mutex<Products>>,
    /// The first one is for one item.
    chains: Vec<Chain>,
    /// Replaces the chains during calibration.
    trial: Option<Chain>,
    tensors: Tensors,
    /// Inputs and outputs of each slot.
    memory: [[CudaSlice<u8>; 2]; SLOTS],
}

impl Products {
    pub(super) fn new(cuda: &Cuda) -> Result<Self, GpuLoadError> {
        let blas = Blas::new(cuda)?;
        let matrices = LINK_SIZES.iter().map(|&rows| Matrices::new(cuda, &blas, rows)).collect::<Result<_, _>>()?;
        Ok(Self { blas, matrices })
    }

    fn enqueue(&mut self, cuda: &Cuda, chain: &Chain) -> Result<(), DeviceError> {
        for (rows, times) in chain.links() {
            let Some(place) = LINK_SIZES.iter().position(|&size| size == rows) else { continue };
            let Matrices { square, weights, given, result } = &mut self.matrices[place];
            for _ in 0..times {
                // SAFETY: all three are square matrices of `rows` rows, and belong to the lane of `blas` alone (rule
                // 2).
                unsafe { self.blas.multiply(cuda, square, [weights, given], result) }?;
            }
        }
        Ok(())
    }
}

impl Matrices {
    /// Numbers as a model has them: products that are neither all large nor all small.
    fn new(cuda: &Cuda, blas: &Blas, rows: u32) -> Result<Self, DeviceError> {
        let stream = cuda.lane(Lane::Compute);
        let count = rows as usize * rows as usize;
        let random = |seed: u64, bound: f32| {
            let mut state = seed;
            let mut next = || {
                // Xorshift (Marsaglia, 2003): zeros would be faster than a model's numbers.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                bound * ((state >> 40) as f32 / (1_u32 << 23) as f32 - 1.0)
            };
            (0..count.min(DRAWN_MAX)).map(|_| next()).collect::<Vec<f32>>()
        };
        // Uniform within ±b has the variance b²/3.
        let weights = random(0x9e37_79b9_7f4a_7c15, (3.0 / rows as f32).sqrt());
        let given = random(0xd1b5_4a32_d192_ed03, 1.0);
        let on_device = |numbers: &[f32]| -> Result<CudaSlice<f32>, DeviceError> {
            // SAFETY: all of it is written below, before anything reads it: both lengths are powers of two.
            let mut matrix = unsafe { stream.alloc::<f32>(count) }.map_err(device_error)?;
            for from in (0..count).step_by(numbers.len()) {
                stream.memcpy_htod(numbers, &mut matrix.slice_mut(from..)).map_err(device_error)?;
            }
            Ok(matrix)
        };
        let result = stream.alloc_zeros(count).map_err(device_error)?;
        let square = blas.square(cuda, rows)?;
        let made = Self { square, weights: on_device(&weights)?, given: on_device(&given)?, result };
        // The copies read the numbers above.
        stream.synchronize().map_err(device_error)?;
        Ok(made)
    }
}

impl GemmProgram {
    fn products(products: &Mutex<Products>) -> MutexGuard<'_, Products> {
        products.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: inputs and outputs are in `memory`, which has room for the largest batch and is never replaced; products and
// copies are enqueued in the lane `Compute`.
unsafe impl Program for GemmProgram {
    fn input(&mut self, slot: usize, index: usize) -> u64 {
        address(&self.memory[slot][0], self.cuda.lane(Lane::In)) + self.tensors.range(index, 0).start as u64
    }

    fn enqueue(&mut self, slot: usize, filled: u32) -> Result<(), DeviceError> {
        let chain = self.trial.or_else(|| self.chains.get(filled as usize - 1).copied()).unwrap_or_default();
        Self::products(&self.products).enqueue(&self.cuda, &chain)?;
        let compute = self.cuda.lane(Lane::Compute);
        let [inputs, outputs] = &mut self.memory[slot];
        for index in 0..self.tensors.len() {
            let range = self.tensors.range(index, filled);
            let mut to = outputs.slice_mut(range.clone());
            compute.memcpy_dtod(&inputs.slice(range), &mut to).map_err(device_error)?;
        }
        Ok(())
    }

    fn output(&mut self, slot: usize, index: usize) -> Result<u64, DeviceError> {
        let begin = address(&self.memory[slot][1], self.cuda.lane(Lane::Out));
        Ok(begin + self.tensors.range(index, 0).start as u64)
    }
}

fn address(memory: &CudaSlice<u8>, lane: &Arc<CudaStream>) -> u64 {
    memory.device_ptr(lane).0
}

impl Cuda {
    /// A model that takes ℓ(b) in these lanes, to within 3 %. Finds the chains by running them, which takes the GPU
    /// some seconds.
    ///
    /// # Errors
    /// If cuBLASLt is not there, the device refuses, or the profile cannot be kept.
    pub fn load_gemm(
        &self,
        profile: &LatencyProfile,
        signature: Signature,
        turn: Turn<'_>,
    ) -> Result<GemmModel, GpuLoadError> {
        let mut model = self.load_chains(vec![Chain::default(); profile.batch_max() as usize], signature)?;
        let chains = calibrate(&mut model, profile, turn)?;
        let program = model.pipeline_mut().device_mut().program_mut();
        (program.chains, program.trial) = (chains, None);
        Ok(model)
    }

    /// A model with given chains, the first one for a batch of one item; they are not measured.
    ///
    /// # Errors
    /// If cuBLASLt is not there, or the device refuses.
    pub fn load_chains(&self, chains: Vec<Chain>, signature: Signature) -> Result<GemmModel, GpuLoadError> {
        let products = self.products()?;
        let before = self.used_by_now()?;
        let item_bytes: Vec<_> = signature.inputs.iter().map(symphony_types::TensorSpec::item_bytes).collect();
        let batch_max = chains.len() as u32;
        let tensors = Tensors::new(&item_bytes, batch_max);
        let compute = self.lane(Lane::Compute);
        let room = || compute.alloc_zeros::<u8>(tensors.bytes()).map_err(device_error);
        let memory = [[room()?, room()?], [room()?, room()?]];
        // Memory is taken in the order of one lane, and used in others.
        compute.synchronize().map_err(device_error)?;
        let program = GemmProgram { cuda: self.clone(), products, chains, trial: None, tensors, memory };
        let device = CudaDevice::new(self, program, &item_bytes, &item_bytes, batch_max)?;
        let static_bytes = self.memory()?.0.saturating_sub(before);
        let model = GemmModel::new(device, "cuda-gemm", signature, batch_max, Answers::Checksums);
        Ok(model.with_memory(static_bytes))
    }
}

/// Measures what the calibration asks for, until it is done.
fn calibrate(model: &mut GemmModel, profile: &LatencyProfile, turn: Turn<'_>) -> Result<Vec<Chain>, GpuLoadError> {
    let mut calibration = Calibration::new(profile.clone(), TOLERANCE);
    let mut took = None;
    loop {
        match calibration.step(took)? {
            Step::Done(chains) => return Ok(chains),
            Step::Measure(trial) => took = Some(time(model, trial, turn)?),
        }
    }
}

/// The median time of a batch, from its launch to its answers: its inputs are on the device already, as in a series of
/// batches.
fn time(model: &mut GemmModel, trial: Trial, turn: Turn<'_>) -> Result<Nanos, DeviceError> {
    let failed = |error: ExecuteError| DeviceError::Failed(error.to_string());
    let inputs: Vec<Vec<u8>> = model.signature().inputs.iter().map(|spec| vec![1; spec.item_bytes()]).collect();
    let inputs: Vec<Vec<u8>> = inputs.iter().map(|item| item.repeat(trial.batch as usize)).collect();
    let tensors: Vec<_> = inputs.iter().map(Vec::as_slice).collect();
    let batch = BatchInputs { items: trial.batch, tensors: &tensors, start: None };
    model.pipeline_mut().device_mut().program_mut().trial = Some(trial.chain);
    let (mut times, mut outputs) = (Vec::with_capacity(RUNS), Vec::new());
    for run in 0..WARMUP_RUNS + RUNS {
        model.stage(&batch).map_err(failed)?;
        model.pipeline_mut().device_mut().settle();
        turn(trial.batch);
        let begin = Instant::now();
        model.launch().map_err(failed)?;
        model.finish(&mut outputs).map_err(failed)?;
        if run >= WARMUP_RUNS {
            times.push(begin.elapsed());
        }
    }
    times.sort_unstable();
    Ok(times.get(RUNS / 2).copied().unwrap_or_default().into())
}

impl fmt::Debug for GemmProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GemmProgram").field("cuda", &self.cuda).field("chains", &self.chains).finish_non_exhaustive()
    }
}
