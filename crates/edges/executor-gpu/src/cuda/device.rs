//! The overlap's device port on a GPU: lanes are CUDA streams.

use std::fmt;

use cudarc::driver::sys::{CUevent, CUevent_flags, CUresult};
use cudarc::driver::{CudaEvent, DriverError, result};
use symphony_types::Nanos;

use super::Cuda;
use super::errors::device_error;
use super::pinned::PinnedBuffer;
use crate::overlap::{Device, DeviceError, Event, Extent, Lane, SLOTS, Span, Spans};

/// Tensors begin at multiples of this: like the driver's own allocations, and more than any kernel requires.
pub(super) const ALIGNMENT: usize = 256;

/// What runs on a device, and its device memory.
///
/// # Safety
/// [`Program::input`] and [`Program::output`] give addresses of the GPU's memory that are as long as a tensor of a
/// batch of `filled` items, and stay so until the next call of [`Program::enqueue`] for the slot, or the program is
/// dropped. [`Program::enqueue`] uses no other lane than `Compute`.
pub unsafe trait Program: Send + fmt::Debug {
    /// The address of an input's tensor in a slot.
    fn input(&mut self, slot: usize, index: usize) -> u64;

    /// Enqueues a batch of `filled` items in the lane `Compute`.
    ///
    /// # Errors
    /// If it, or the device, refuses.
    fn enqueue(&mut self, slot: usize, filled: u32) -> Result<(), DeviceError>;

    /// The address of an output's tensor in a slot, after the batch was enqueued.
    ///
    /// # Errors
    /// If there is none.
    fn output(&mut self, slot: usize, index: usize) -> Result<u64, DeviceError>;
}

/// Tensors of one sort, one behind the other.
#[derive(Clone, Debug)]
pub(super) struct Tensors {
    /// Where each begins, and bytes of one item.
    places: Vec<(usize, usize)>,
    bytes: usize,
}

impl Tensors {
    /// For items of this many bytes, and batches of at most `batch_max` items.
    pub(super) fn new(item_bytes: &[usize], batch_max: u32) -> Self {
        let mut bytes = 0_usize;
        let mut place = |&item: &usize| {
            let begin = bytes;
            bytes += (item * batch_max as usize).next_multiple_of(ALIGNMENT);
            (begin, item)
        };
        let places = item_bytes.iter().map(&mut place).collect();
        Self { places, bytes }
    }

    /// Bytes of all tensors together.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The place of a tensor of this many items.
    pub(super) fn range(&self, index: usize, items: u32) -> std::ops::Range<usize> {
        let (begin, item) = self.places[index];
        begin..begin + item * items as usize
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.places.len()
    }
}

/// The host memory and the events of a slot.
#[derive(Debug)]
struct Slot {
    inputs: PinnedBuffer,
    outputs: PinnedBuffer,
    /// By lane: start and end of its work; the end is the event of the overlap.
    began: [CudaEvent; 3],
    done: [CudaEvent; 3],
}

/// A GPU with one model's buffers.
#[derive(Debug)]
pub struct CudaDevice<P> {
    /// Before what it uses, so that it goes first. (Fields are dropped in their order.)
    program: P,
    cuda: Cuda,
    inputs: Tensors,
    outputs: Tensors,
    slots: [Slot; SLOTS],
    /// The origin of spans.
    zero: CudaEvent,
}

impl<P: Program> CudaDevice<P> {
    /// Allocates host memory and events for a program with these bytes per item and tensor.
    pub(super) fn new(
        cuda: &Cuda,
        program: P,
        inputs: &[usize],
        outputs: &[usize],
        batch_max: u32,
    ) -> Result<Self, DeviceError> {
        let (inputs, outputs) = (Tensors::new(inputs, batch_max), Tensors::new(outputs, batch_max));
        let event = || cuda.context().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(device_error);
        let slot = || {
            Ok::<_, DeviceError>(Slot {
                inputs: cuda.pinned().take(cuda.context(), inputs.bytes())?,
                outputs: cuda.pinned().take(cuda.context(), outputs.bytes())?,
                began: [event()?, event()?, event()?],
                done: [event()?, event()?, event()?],
            })
        };
        let slots = [slot()?, slot()?];
        let zero = event()?;
        let mut device = Self { program, cuda: cuda.clone(), inputs, outputs, slots, zero };
        device.count_from_now()?;
        Ok(device)
    }

    /// What runs on it.
    pub(super) const fn program_mut(&mut self) -> &mut P {
        &mut self.program
    }

    fn event(&self, event: Event) -> &CudaEvent {
        &self.slots[event.slot].done[event.mark as usize]
    }

    fn began(&self, lane: Lane, slot: usize) -> Result<(), DeviceError> {
        self.slots[slot].began[lane as usize].record(self.cuda.lane(lane)).map_err(device_error)
    }

    fn span(&self, slot: usize, lane: Lane) -> Result<Span, DeviceError> {
        let slot = &self.slots[slot];
        let at = |event: &CudaEvent| {
            let ms = elapsed_ms(&self.zero, event)?;
            Ok::<_, DeviceError>(Nanos::from_millis_f64(f64::from(ms.max(0.0))))
        };
        Ok(Span { from: at(&slot.began[lane as usize])?, until: at(&slot.done[lane as usize])? })
    }
}

impl<P: Program> Device for CudaDevice<P> {
    fn fill(&mut self, slot: usize, extent: Extent, inputs: &[&[u8]]) -> Result<(), DeviceError> {
        for (index, input) in inputs.iter().enumerate() {
            let range = self.inputs.range(index, extent.filled);
            let item = self.inputs.places[index].1;
            let memory = &mut self.slots[slot].inputs.as_mut_slice()[range];
            memory[..input.len()].copy_from_slice(input);
            for begin in (input.len()..memory.len()).step_by(item.max(1)) {
                memory.copy_within(begin - item..begin, begin);
            }
        }
        Ok(())
    }

    fn copy_in(&mut self, slot: usize, extent: Extent) -> Result<(), DeviceError> {
        self.began(Lane::In, slot)?;
        for index in 0..self.inputs.len() {
            let to = self.program.input(slot, index);
            let from = &self.slots[slot].inputs.as_slice()[self.inputs.range(index, extent.filled)];
            // SAFETY: `to` is as long (`Program`), and neither memory is used for anything else or freed before the
            // event that the overlap records next (rule 1).
            unsafe { result::memcpy_htod_async(to, from, self.cuda.lane(Lane::In).cu_stream()) }
                .map_err(device_error)?;
        }
        Ok(())
    }

    fn compute(&mut self, slot: usize, extent: Extent) -> Result<(), DeviceError> {
        self.began(Lane::Compute, slot)?;
        self.program.enqueue(slot, extent.filled)
    }

    fn copy_out(&mut self, slot: usize, extent: Extent) -> Result<(), DeviceError> {
        self.began(Lane::Out, slot)?;
        for index in 0..self.outputs.len() {
            let from = self.program.output(slot, index)?;
            let range = self.outputs.range(index, extent.filled);
            let to = &mut self.slots[slot].outputs.as_mut_slice()[range];
            // SAFETY: as for the way in.
            unsafe { result::memcpy_dtoh_async(to, from, self.cuda.lane(Lane::Out).cu_stream()) }
                .map_err(device_error)?;
        }
        Ok(())
    }

    fn drain(&mut self, slot: usize, extent: Extent, outputs: &mut Vec<Vec<u8>>) -> Result<(), DeviceError> {
        outputs.resize_with(self.outputs.len(), Vec::new);
        for (index, output) in outputs.iter_mut().enumerate() {
            output.clear();
            output.extend_from_slice(&self.slots[slot].outputs.as_slice()[self.outputs.range(index, extent.items)]);
        }
        Ok(())
    }

    fn record(&mut self, lane: Lane, event: Event) -> Result<(), DeviceError> {
        self.event(event).record(self.cuda.lane(lane)).map_err(device_error)
    }

    fn wait(&mut self, lane: Lane, event: Event) -> Result<(), DeviceError> {
        self.cuda.lane(lane).wait(self.event(event)).map_err(device_error)
    }

    fn host_wait(&mut self, event: Event) -> Result<(), DeviceError> {
        self.event(event).synchronize().map_err(device_error)
    }

    fn is_reached(&mut self, event: Event) -> Result<bool, DeviceError> {
        self.cuda.context().bind_to_thread().map_err(device_error)?;
        // cudarc's own call treats an error as "not yet", and would wait for ever.
        // SAFETY: the event is in `self`.
        match unsafe { result::event::query(self.event(event).cu_event()) } {
            Ok(()) => Ok(true),
            Err(DriverError(CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(device_error(error)),
        }
    }

    fn spans(&mut self, slot: usize) -> Result<Spans, DeviceError> {
        Ok(Spans {
            copy_in: self.span(slot, Lane::In)?,
            compute: self.span(slot, Lane::Compute)?,
            copy_out: self.span(slot, Lane::Out)?,
        })
    }

    fn count_from_now(&mut self) -> Result<(), DeviceError> {
        self.zero.record(self.cuda.lane(Lane::Compute)).map_err(device_error)
    }

    fn settle(&mut self) {
        self.cuda.settle();
    }

    fn used_bytes(&self) -> Option<u64> {
        self.cuda.memory().ok().map(|(used, _)| used)
    }
}

/// Milliseconds between two events that have been reached. cudarc's own call needs a driver entry that drivers before
/// CUDA 12.8 lack, and panics without it; this uses whichever entry exists.
fn elapsed_ms(from: &CudaEvent, to: &CudaEvent) -> Result<f32, DeviceError> {
    type ElapsedTime = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;
    const NAMES: [&str; 2] = ["cuEventElapsedTime", "cuEventElapsedTime_v2"];
    from.synchronize().and_then(|()| to.synchronize()).map_err(device_error)?;
    // SAFETY: the driver has been found (rule 3).
    let driver = unsafe { cudarc::driver::sys::culib() };
    // SAFETY: this is the type that the driver's interface gives both names.
    let mut found = NAMES.iter().filter_map(|name| unsafe { driver.get::<ElapsedTime>(name.as_bytes()) }.ok());
    let elapsed =
        found.next().ok_or_else(|| DeviceError::Failed(format!("the driver has no {}", NAMES.join(" or "))))?;
    let mut ms = 0.0;
    // SAFETY: it writes one number to the address of one; both events live.
    unsafe { elapsed(&raw mut ms, from.cu_event(), to.cu_event()) }.result().map_err(device_error)?;
    Ok(ms)
}

impl<P> Drop for CudaDevice<P> {
    fn drop(&mut self) {
        self.cuda.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_lie_one_behind_the_other_and_begin_aligned() {
        let tensors = Tensors::new(&[10, 4], 30);
        assert_eq!((tensors.range(0, 30), tensors.range(1, 3)), (0..300, 512..524));
        assert_eq!((tensors.bytes(), tensors.len()), (768, 2));
    }
}
