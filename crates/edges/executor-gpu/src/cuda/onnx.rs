//! ONNX models on a GPU: ONNX Runtime computes in the lane `Compute`, everything else is the overlap's.
//!
//! Inputs are memory that cudarc took when the model was loaded, and ONNX Runtime is shown it. Outputs are tensors of
//! ONNX Runtime's own allocator, taken when a batch is enqueued and given back when its slot is computed again: memory
//! of that allocator may come back to it while a kernel still runs, which is in order within one lane only, and outputs
//! are written in that lane.

use std::fmt;
use std::path::Path;

use cudarc::driver::{CudaSlice, DevicePtr};
use ort::ep::{CUDA, ExecutionProvider, ExecutionProviderDispatch};
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{OutputSelector, RunOptions, Session, SessionInputValue};
use ort::value::{DynTensorValueType, DynValue, Shape, Tensor, TensorRefMut, ValueType};
use symphony_executor::{BatchSizes, ExecuteError, LoadError, OnnxInput, OnnxOptions, OnnxSession, Runtime};
use symphony_types::{DataType, Signature, TensorSpec};

use super::device::{CudaDevice, Program, Tensors};
use super::errors::{NoCuda, device_error, is_want_of_memory};
use super::{Cuda, GpuLoadError};
use crate::overlap::{DeviceError, Lane, SLOTS};
use crate::staged_model::{Answers, StagedModel, Turn};

/// An ONNX model on a GPU.
pub type OnnxOnCuda = StagedModel<CudaDevice<OnnxProgram>>;

/// Whether a loaded ONNX Runtime can use GPUs at all; whether there is one is another question.
///
/// # Errors
/// Names the library that cannot, and what to install.
pub fn cuda_provider_is_there(runtime: &Runtime) -> Result<(), NoCuda> {
    // An error of the question itself is no provider either.
    if CUDA::is_available().unwrap_or(false) {
        return Ok(());
    }
    Err(NoCuda::NoProvider { version: runtime.version().to_owned(), path: runtime.path().display().to_string() })
}

#[derive(Clone, Debug)]
struct ModelTensor {
    name: String,
    data_type: DataType,
    /// The batch dimension first.
    shape: Vec<i64>,
}

/// A session that computes in the lane `Compute` of a GPU.
pub(super) struct OnnxInLane {
    session: Session,
    /// In the model's order; the place of each in the signature beside it.
    inputs: Vec<(usize, ModelTensor)>,
    /// In the signature's order.
    outputs: Vec<ModelTensor>,
    /// After the session, which computes in one of its streams. (Fields are dropped in their order.)
    cuda: Cuda,
}

/// A session, and what its batches have to be.
pub(super) struct Loaded {
    pub(super) onnx: OnnxInLane,
    pub(super) signature: Signature,
    pub(super) batch_max: u32,
    pub(super) sizes: Option<BatchSizes>,
}

/// A session, and the device memory of its inputs.
pub struct OnnxProgram {
    /// The outputs of the last batch of each slot, in the signature's order. Before the session, so that they go first:
    /// its allocator, to which they go back, is valid as long as the session. (Fields are dropped in their order.)
    computed: [Vec<DynValue>; SLOTS],
    onnx: OnnxInLane,
    /// In the signature's order.
    tensors: Tensors,
    memory: [CudaSlice<u8>; SLOTS],
}

impl Cuda {
    /// Loads a model onto this GPU, in lanes of its own, so that no batch of another one waits behind those of the
    /// load. Operators that CUDA has not are run on the CPU, by ONNX Runtime, which waits for them. A model that takes
    /// no zeros is not warmed up.
    ///
    /// # Errors
    /// If ONNX Runtime has no CUDA or refuses the model, or the device has too little memory.
    pub fn load_onnx(
        &self,
        runtime: &Runtime,
        path: &Path,
        options: &OnnxOptions,
        turn: Turn<'_>,
    ) -> Result<OnnxOnCuda, GpuLoadError> {
        self.with_own_lanes()?.load_onnx_here(runtime, path, options, turn)
    }

    fn load_onnx_here(
        &self,
        runtime: &Runtime,
        path: &Path,
        options: &OnnxOptions,
        turn: Turn<'_>,
    ) -> Result<OnnxOnCuda, GpuLoadError> {
        let name = path.display().to_string();
        let refuse = |problem: String| LoadError { model: name.clone(), problem };
        let before = self.used_by_now()?;
        let open = |providers: &[_]| OnnxSession::from_file(runtime, path, options, providers);
        let Loaded { onnx, signature, batch_max, sizes } = OnnxInLane::load(self, runtime, &name, open)?;
        let bytes = |specs: &[TensorSpec]| specs.iter().map(TensorSpec::item_bytes).collect::<Vec<_>>();
        let (input_bytes, output_bytes) = (bytes(&signature.inputs), bytes(&signature.outputs));
        let filled_max = sizes.as_ref().and_then(|sizes| sizes.filled(batch_max)).unwrap_or(batch_max);
        let tensors = Tensors::new(&input_bytes, filled_max);
        let compute = self.lane(Lane::Compute);
        let room = || compute.alloc_zeros::<u8>(tensors.bytes()).map_err(device_error);
        let memory = [room()?, room()?];
        // Memory is taken in the order of one lane, and used in others.
        compute.synchronize().map_err(device_error)?;
        let computed = Default::default();
        let program = OnnxProgram { computed, onnx, tensors, memory };
        let device = CudaDevice::new(self, program, &input_bytes, &output_bytes, filled_max)?;
        let static_bytes = self.memory()?.0.saturating_sub(before);
        let model = OnnxOnCuda::new(device, "onnxruntime-cuda", signature, batch_max, Answers::AsTheyAre);
        let mut model = model.with_sizes(sizes).with_memory(static_bytes);
        match model.warm_up(turn) {
            Err(error @ ExecuteError::OutOfMemory { .. }) => return Err(refuse(error.to_string()).into()),
            Err(error @ ExecuteError::DeviceLost { .. }) => return Err(refuse(error.to_string()).into()),
            Err(error) => {
                tracing::warn!(%error, model = %path.display(), "a batch of zeros failed; the first batches will be slow");
            }
            Ok(()) => {}
        }
        Ok(model)
    }
}

macro_rules! by_type {
    ($($variant:ident: $number:ty, $element:ident;)*) => {
        impl ModelTensor {
            /// Memory on the device as an input of this shape.
            ///
            /// # Safety
            /// The memory at `address` of the device is as long as the shape says, and lives longer than the value.
            unsafe fn shown(&self, ordinal: i32, address: u64, filled: u32) -> ort::Result<SessionInputValue<'static>> {
                let info = device_memory(ordinal)?;
                let data = address as usize as *mut _;
                let shape = Shape::new(self.filled(filled));
                Ok(match self.data_type {
                    $(DataType::$variant => {
                        // SAFETY: the caller's promise.
                        unsafe { TensorRefMut::<$number>::from_raw(info, data, shape) }?.into()
                    })*
                })
            }

            /// A new tensor on the device for an output of this shape.
            fn taken(&self, allocator: &Allocator, filled: u32) -> ort::Result<DynValue> {
                let shape = Shape::new(self.filled(filled));
                Ok(match self.data_type {
                    $(DataType::$variant => Tensor::<$number>::new(allocator, shape)?.into_dyn(),)*
                })
            }
        }
    };
}

symphony_executor::with_element_types!(by_type);

impl ModelTensor {
    fn filled(&self, filled: u32) -> Vec<i64> {
        let mut shape = self.shape.clone();
        if let Some(batch) = shape.first_mut() {
            *batch = i64::from(filled);
        }
        shape
    }
}

fn device_memory(ordinal: i32) -> ort::Result<MemoryInfo<'static>> {
    MemoryInfo::new(AllocationDevice::CUDA, ordinal, AllocatorType::Device, MemoryType::Default)
}

impl OnnxInLane {
    /// Loads a model that `open` opens with the providers that it is given; `name` is for error messages.
    pub(super) fn load(
        cuda: &Cuda,
        runtime: &Runtime,
        name: &str,
        open: impl FnOnce(&[ExecutionProviderDispatch]) -> Result<OnnxSession, LoadError>,
    ) -> Result<Loaded, GpuLoadError> {
        let refuse = |problem: String| LoadError { model: name.to_owned(), problem };
        cuda_provider_is_there(runtime).map_err(|error| refuse(error.to_string()))?;
        let provider = CUDA::default().with_device_id(cuda.ordinal().cast_signed());
        let stream = cuda.lane(Lane::Compute).cu_stream().cast();
        // SAFETY: the stream lives as long as the lanes, which `OnnxInLane` holds longer than its session.
        let provider = unsafe { provider.with_compute_stream(stream) };
        let opened = open(&[provider.build().error_on_failure()])?;
        let OnnxSession { session, signature, batch_max, sizes, inputs, outputs, .. } = opened;
        let outputs = outputs.iter().zip(&signature.outputs).map(|(&place, spec)| {
            let outlet = &session.outputs()[place];
            let ValueType::Tensor { shape, .. } = outlet.dtype() else {
                return Err(refuse(format!("output `{}` is no tensor", outlet.name())));
            };
            Ok(ModelTensor { name: outlet.name().to_owned(), data_type: spec.data_type, shape: shape.to_vec() })
        });
        let outputs = outputs.collect::<Result<_, _>>()?;
        let inputs = inputs.into_iter().map(|OnnxInput { name, given, data_type, item_shape }| {
            (given, ModelTensor { name, data_type, shape: std::iter::once(0).chain(item_shape).collect() })
        });
        let inputs = inputs.collect();
        let onnx = Self { session, inputs, outputs, cuda: cuda.clone() };
        Ok(Loaded { onnx, signature, batch_max, sizes })
    }

    /// Enqueues a batch, and returns its outputs, in the signature's order.
    ///
    /// # Safety
    /// At each address, in the signature's order, there is a tensor of `filled` items in the GPU's memory. It is
    /// neither freed nor used otherwise before the lane `Compute` has come to the end of the batch.
    pub(super) unsafe fn run(&mut self, addresses: &[u64], filled: u32) -> Result<Vec<DynValue>, DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { self.enqueue(addresses, filled) }.map_err(|error| self.failed(&error))
    }

    /// As [`run`](Self::run).
    ///
    /// # Safety
    /// As there.
    unsafe fn enqueue(&mut self, addresses: &[u64], filled: u32) -> ort::Result<Vec<DynValue>> {
        let ordinal = self.cuda.ordinal().cast_signed();
        let shown = |(given, place): &(usize, ModelTensor)| {
            // SAFETY: the caller's promise.
            unsafe { place.shown(ordinal, addresses[*given], filled) }
        };
        let inputs = self.inputs.iter().map(shown).collect::<ort::Result<Vec<_>>>()?;
        let allocator = Allocator::new(&self.session, device_memory(ordinal)?)?;
        let mut selected = OutputSelector::no_default();
        for place in &self.outputs {
            selected = selected.with(&place.name).preallocate(&place.name, place.taken(&allocator, filled)?);
        }
        let mut options = RunOptions::new()?;
        // The host waits for the lane where it has to.
        options.disable_device_sync()?;
        let options = options.with_outputs(selected);
        let mut results = self.session.run_with_options(inputs.as_slice(), &options)?;
        let take = |place: &ModelTensor| {
            results.remove(&place.name).ok_or_else(|| ort::Error::new(format!("gave no output `{}`", place.name)))
        };
        self.outputs.iter().map(take).collect()
    }

    fn failed(&self, error: &ort::Error) -> DeviceError {
        let words = error.to_string();
        if is_want_of_memory(&words) {
            return DeviceError::OutOfMemory(words);
        }
        self.cuda.blame(words)
    }
}

/// The address of a tensor on the device.
pub(super) fn address(value: Option<&DynValue>) -> Result<u64, DeviceError> {
    let tensor = value.and_then(|value| value.view().downcast::<DynTensorValueType>().ok());
    let address = tensor.map(|tensor| tensor.data_ptr() as usize as u64);
    address.ok_or_else(|| DeviceError::Failed("an output is no tensor".into()))
}

// SAFETY: inputs are in `memory`, which has room for the largest batch and is never replaced. Outputs were taken with
// the shape of the batch, and ONNX Runtime refuses to run a model that gives another one. The session computes in the
// lane `Compute`, which is the stream that it was given.
unsafe impl Program for OnnxProgram {
    fn input(&mut self, slot: usize, index: usize) -> u64 {
        let begin = self.memory[slot].device_ptr(self.onnx.cuda.lane(Lane::In)).0;
        begin + self.tensors.range(index, 0).start as u64
    }

    fn enqueue(&mut self, slot: usize, filled: u32) -> Result<(), DeviceError> {
        let begin = self.memory[slot].device_ptr(self.onnx.cuda.lane(Lane::Compute)).0;
        let places = (0..self.tensors.len()).map(|index| self.tensors.range(index, 0).start as u64);
        let addresses: Vec<_> = places.map(|place| begin + place).collect();
        // SAFETY: `memory` has room for the largest batch, is never replaced, and goes after the session (rule 2).
        self.computed[slot] = unsafe { self.onnx.run(&addresses, filled) }?;
        Ok(())
    }

    fn output(&mut self, slot: usize, index: usize) -> Result<u64, DeviceError> {
        address(self.computed[slot].get(index))
    }
}

impl fmt::Debug for OnnxInLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnnxInLane").field("cuda", &self.cuda).field("inputs", &self.inputs).finish_non_exhaustive()
    }
}

impl fmt::Debug for OnnxProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnnxProgram").field("onnx", &self.onnx).finish_non_exhaustive()
    }
}
