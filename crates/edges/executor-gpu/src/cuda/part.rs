//! Parts of models on a GPU. What a trunk gives stays in the GPU's memory, and suffixes take their rows there.
//!
//! Each part has a stream of its own, so that it can be loaded beside others, and go without them: all of its work is
//! in the lane `Compute`. Between the streams of a trunk and a suffix there are two events:
//!
//! ```text
//! trunk   inputs ══▶ computed ═▶ given                      ┌▶ the next batch overwrites what was given
//! suffix                           └▶ (gather) ═ computed ══▶ taken ═▶ outputs ══▶
//! ```

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{CudaEvent, CudaSlice, CudaStream, DevicePtr, result};
use symphony_executor::{BatchInputs, ExecuteError, FamilyPart, MemoryUse, ModelExecutor, Stop};
use symphony_types::{Signature, TensorSpec};

use super::device::{ALIGNMENT, Tensors};
use super::errors::device_error;
use super::pinned::PinnedBuffer;
use super::{Cuda, GpuLoadError};
use crate::overlap::{DeviceError, Lane};
use crate::staged_model::failure;

/// What a part computes.
///
/// # Safety
/// [`PartProgram::enqueue`] uses no lane but `Compute` of the GPU that the program was loaded with, and reads no more
/// of its inputs than tensors of so many rows are long. [`PartProgram::output`] gives an address of the GPU's memory
/// that is as long as a tensor of the rows enqueued last, and stays so until the next call of [`PartProgram::enqueue`],
/// or the program is dropped.
pub unsafe trait PartProgram: Send + fmt::Debug {
    /// Enqueues so many rows. Their inputs are at these addresses of the GPU's memory, in the signature's order.
    ///
    /// # Safety
    /// At each address there is a tensor of so many rows. It is neither freed nor used otherwise before the lane
    /// `Compute` has come to the end of what this enqueues.
    ///
    /// # Errors
    /// If it, or the device, refuses.
    unsafe fn enqueue(&mut self, inputs: &[u64], rows: u32) -> Result<(), DeviceError>;

    /// The address of an output of the rows enqueued last, by its place in the signature.
    ///
    /// # Errors
    /// If there is none.
    fn output(&mut self, index: usize) -> Result<u64, DeviceError>;
}

/// A trunk, a suffix or a whole model on a GPU.
#[derive(Debug)]
pub struct CudaPart<P> {
    /// Before what it uses, so that it goes first. (Fields are dropped in their order.)
    program: P,
    kind: &'static str,
    signature: Signature,
    batch_max: u32,
    inputs: Tensors,
    outputs: Tensors,
    /// Of inputs from the host: a suffix has none.
    from_host: Option<FromHost>,
    /// Of outputs to the host: a trunk has none.
    to_host: Option<PinnedBuffer>,
    /// Where a trunk's rows are gathered for suffixes that cannot take them where they lie.
    gathered: Option<CudaSlice<u8>>,
    /// Bytes of that which belong to suffixes of the batch.
    gathered_bytes: usize,
    /// Rows of the last batch.
    rows: u32,
    /// Reached when what it gives is there.
    given: CudaEvent,
    /// Reached when it no longer reads what its trunk has given.
    taken: CudaEvent,
    memory: MemoryUse,
    /// The largest batch so far: only a larger one makes the runtime take memory.
    largest: u32,
    cuda: Cuda,
}

#[derive(Debug)]
struct FromHost {
    pinned: PinnedBuffer,
    memory: CudaSlice<u8>,
}

impl Cuda {
    /// Loads a part in a stream of its own: `load` is given the GPU with that as all lanes, and returns the program,
    /// its inputs and outputs, and its largest batch.
    ///
    /// # Errors
    /// If it cannot be loaded, or the device has not the memory.
    pub fn load_part<P: PartProgram>(
        &self,
        kind: &'static str,
        load: impl FnOnce(&Self) -> Result<(P, Signature, u32), GpuLoadError>,
    ) -> Result<CudaPart<P>, GpuLoadError> {
        let cuda = self.with_own_stream()?;
        let before = cuda.used_by_now()?;
        let (program, signature, batch_max) = load(&cuda)?;
        // What a load takes in the order of a lane is there from here on.
        cuda.lane(Lane::Compute).synchronize().map_err(device_error)?;
        let tensors = |specs: &[TensorSpec]| {
            let bytes: Vec<_> = specs.iter().map(TensorSpec::item_bytes).collect();
            Tensors::new(&bytes, batch_max)
        };
        let (inputs, outputs) = (tensors(&signature.inputs), tensors(&signature.outputs));
        let event = || cuda.context().new_event(None).map_err(device_error);
        let (given, taken) = (event()?, event()?);
        let static_bytes = cuda.memory()?.0.saturating_sub(before);
        Ok(CudaPart {
            program,
            kind,
            signature,
            batch_max,
            inputs,
            outputs,
            from_host: None,
            to_host: None,
            gathered: None,
            gathered_bytes: 0,
            rows: 0,
            given,
            taken,
            memory: MemoryUse { static_bytes, dynamic_bytes: 0 },
            largest: 0,
            cuda,
        })
    }
}

impl<P: PartProgram> CudaPart<P> {
    /// Enqueues a batch, and notes what it makes the device take. After a failure nothing of it runs any more.
    fn begin(
        &mut self,
        rows: u32,
        enqueue: impl FnOnce(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<(), ExecuteError> {
        let before = if rows > self.largest { self.cuda.memory().ok() } else { None };
        self.rows = 0;
        let bound = self.cuda.context().bind_to_thread().map_err(device_error);
        if let Err(error) = bound.and_then(|()| enqueue(self)) {
            self.cuda.settle();
            return Err(failure(rows, &error.into()));
        }
        self.rows = rows;
        if let Some((before, _)) = before {
            let after = self.cuda.memory().map_or(before, |(after, _)| after);
            self.memory.dynamic_bytes += after.saturating_sub(before);
            self.largest = rows;
        }
        Ok(())
    }

    /// Enqueues the copy of a batch's inputs from the host, and the batch.
    fn enter(&mut self, batch: &BatchInputs<'_>) -> Result<(), DeviceError> {
        let (cuda, inputs) = (&self.cuda, &self.inputs);
        let lane = cuda.lane(Lane::Compute);
        let room = || {
            let pinned = cuda.pinned().take(cuda.context(), inputs.bytes())?;
            let memory = lane.alloc_zeros::<u8>(inputs.bytes()).map_err(device_error)?;
            Ok::<_, DeviceError>(FromHost { pinned, memory })
        };
        let FromHost { pinned, memory } = made(&mut self.from_host, room)?;
        // The batch before was copied from there. It has ended, unless its end was not waited for.
        lane.synchronize().map_err(device_error)?;
        let begin = memory.device_ptr(lane).0;
        let mut addresses = Vec::with_capacity(inputs.len());
        for (index, tensor) in batch.tensors.iter().enumerate() {
            let range = inputs.range(index, batch.items);
            let to = begin + range.start as u64;
            pinned.as_mut_slice()[range.clone()].copy_from_slice(tensor);
            let from = &pinned.as_slice()[range];
            // SAFETY: `memory` is laid out as `pinned` is (rule 2), and neither is used otherwise or freed before this
            // lane has come here (rule 1): above, and when the part is dropped.
            unsafe { result::memcpy_htod_async(to, from, lane.cu_stream()) }.map_err(device_error)?;
            addresses.push(to);
        }
        // SAFETY: they are in `memory`, as above.
        unsafe { self.program.enqueue(&addresses, batch.items) }
    }

    /// Enqueues the copies of its outputs to the host.
    fn leave(&mut self, rows: u32) -> Result<(), DeviceError> {
        let (cuda, outputs) = (&self.cuda, &self.outputs);
        let room = || cuda.pinned().take(cuda.context(), outputs.bytes());
        let pinned = made(&mut self.to_host, room)?;
        for index in 0..outputs.len() {
            let from = self.program.output(index)?;
            let to = &mut pinned.as_mut_slice()[outputs.range(index, rows)];
            // SAFETY: the output is as long (`PartProgram`), and the host reads the memory when this lane has come here
            // (rule 1).
            unsafe { result::memcpy_dtoh_async(to, from, cuda.lane(Lane::Compute).cu_stream()) }
                .map_err(device_error)?;
        }
        Ok(())
    }

    /// Makes room to gather rows, of every row by itself at most.
    fn gather_from_now(&mut self) -> Result<(), DeviceError> {
        self.gathered_bytes = 0;
        let lane = self.cuda.lane(Lane::Compute);
        let bytes = self.row_bytes().next_multiple_of(ALIGNMENT) * self.batch_max as usize;
        let room = || {
            let memory = lane.alloc_zeros::<u8>(bytes).map_err(device_error)?;
            // It is taken in the order of this lane, and used in others.
            lane.synchronize().map_err(device_error)?;
            Ok::<_, DeviceError>(memory)
        };
        made(&mut self.gathered, room).map(|_| ())
    }

    /// Bytes of a row of its first output, the only one that a trunk has.
    fn row_bytes(&self) -> usize {
        self.signature.outputs.first().map_or(0, TensorSpec::item_bytes)
    }

    /// Where these rows of what the trunk gives are one behind the other, for work of that lane, which waits for its
    /// event. A single range is taken where it lies if a tensor may begin there: kernels read 16 bytes at once. Others
    /// are copied within the device.
    fn rows_for(&mut self, lane: &CudaStream, rows: &[Range<usize>]) -> Result<u64, DeviceError> {
        let row_bytes = self.row_bytes();
        let given = self.program.output(0)?;
        if let [rows] = rows
            && (rows.start * row_bytes).is_multiple_of(ALIGNMENT)
        {
            return Ok(given + (rows.start * row_bytes) as u64);
        }
        let bytes: usize = rows.iter().map(|rows| rows.len() * row_bytes).sum();
        let no_room = || DeviceError::Failed("more rows are asked for than the trunk's batch has".into());
        let memory = self.gathered.as_ref().ok_or_else(no_room)?;
        let begin = self.gathered_bytes;
        if begin + bytes > memory.len() {
            return Err(no_room());
        }
        self.gathered_bytes = (begin + bytes).next_multiple_of(ALIGNMENT);
        let begin = memory.device_ptr(lane).0 + begin as u64;
        let mut to = begin;
        for rows in rows {
            let (from, bytes) = (given + (rows.start * row_bytes) as u64, rows.len() * row_bytes);
            // SAFETY: these are rows that the trunk has given (`begin_suffix`), and there is room for them. The trunk's
            // lane waits for this one before either memory is used otherwise or freed (rule 1).
            unsafe { result::memcpy_dtod_async(to, from, bytes, lane.cu_stream()) }.map_err(device_error)?;
            to += bytes as u64;
        }
        Ok(begin)
    }

    /// Enqueues what a suffix does with these rows of the trunk.
    fn take(&mut self, trunk: &mut Self, rows: &[Range<usize>], count: u32) -> Result<(), DeviceError> {
        let lane = self.cuda.lane(Lane::Compute);
        lane.wait(&trunk.given).map_err(device_error)?;
        let address = trunk.rows_for(lane, rows)?;
        // SAFETY: there are so many rows (`begin_suffix`), given or gathered. The trunk's lane waits below for what
        // reads them, and the trunk for its lane before it goes.
        let enqueued = unsafe { self.program.enqueue(&[address], count) };
        self.taken.record(lane).map_err(device_error)?;
        trunk.cuda.lane(Lane::Compute).wait(&self.taken).map_err(device_error)?;
        enqueued?;
        self.leave(count)
    }
}

/// What is in a place, or is made now.
fn made<T>(place: &mut Option<T>, make: impl FnOnce() -> Result<T, DeviceError>) -> Result<&mut T, DeviceError> {
    let made = match place.take() {
        Some(made) => made,
        None => make()?,
    };
    Ok(place.insert(made))
}

impl<P: PartProgram> ModelExecutor for CudaPart<P> {
    fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        batch.check(&self.signature, self.batch_max)?;
        self.begin(batch.items, |part| {
            part.enter(batch)?;
            part.leave(batch.items)
        })?;
        self.end_suffix(outputs)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn batch_max(&self) -> u32 {
        self.batch_max
    }

    fn memory(&self) -> Option<MemoryUse> {
        Some(self.memory)
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn device_memory(&self) -> Option<MemoryUse> {
        Some(self.memory)
    }
}

impl<P: PartProgram> FamilyPart for CudaPart<P> {
    /// ONNX Runtime tries all kernels for each convolution when it first sees a size, for seconds.
    const PREPARES_SIZES: bool = true;

    /// A kernel that runs cannot be ended.
    fn ended_by(self, _: Stop, _: Duration) -> Self {
        self
    }

    /// Each part has memory of its own.
    fn keep_clear_of_batches(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn begin_trunk(&mut self, batch: &BatchInputs<'_>) -> Result<(), ExecuteError> {
        batch.check(&self.signature, self.batch_max)?;
        self.begin(batch.items, |trunk| {
            trunk.gather_from_now()?;
            trunk.enter(batch)?;
            trunk.given.record(trunk.cuda.lane(Lane::Compute)).map_err(device_error)
        })
    }

    fn begin_suffix(&mut self, trunk: &mut Self, rows: &[Range<usize>]) -> Result<(), ExecuteError> {
        let count: usize = rows.iter().map(|rows| rows.len()).sum();
        if count == 0 {
            return Err(ExecuteError::Empty);
        }
        let items = u32::try_from(count).unwrap_or(u32::MAX);
        if items > self.batch_max {
            return Err(ExecuteError::TooLarge { items, batch_max: self.batch_max });
        }
        let are_given = rows.iter().all(|rows| rows.end <= trunk.rows as usize);
        let is_one_gpu = Arc::ptr_eq(&self.cuda.gpu, &trunk.cuda.gpu);
        let row_bytes = |specs: &[TensorSpec]| specs.iter().map(TensorSpec::item_bytes).collect::<Vec<_>>();
        let takes = row_bytes(&self.signature.inputs);
        if !are_given || !is_one_gpu || takes.len() != 1 || takes != row_bytes(&trunk.signature.outputs) {
            let reason = "these are no rows that the trunk has given, or not what the suffix takes".to_owned();
            return Err(ExecuteError::Failed { items, reason });
        }
        self.begin(items, |suffix| suffix.take(trunk, rows, items))
    }

    fn wait(&mut self) -> Result<(), ExecuteError> {
        let waited = self.cuda.lane(Lane::Compute).synchronize();
        waited.map_err(|error| failure(self.rows, &device_error(error).into()))
    }

    fn end_suffix(&mut self, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        self.wait()?;
        outputs.resize_with(self.outputs.len(), Vec::new);
        let memory = self.to_host.as_ref().map(PinnedBuffer::as_slice).unwrap_or_default();
        for (index, output) in outputs.iter_mut().enumerate() {
            output.clear();
            output.extend_from_slice(memory.get(self.outputs.range(index, self.rows)).unwrap_or_default());
        }
        Ok(())
    }
}

impl<P> Drop for CudaPart<P> {
    fn drop(&mut self) {
        // Suffixes that read what it has given are waited for, too: its lane waits for them.
        self.cuda.settle();
    }
}
