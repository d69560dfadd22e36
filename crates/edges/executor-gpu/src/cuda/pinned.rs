//! Pinned host memory, which devices can copy from and to by themselves.

use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaContext, result, sys};

use super::errors::device_error;
use crate::overlap::DeviceError;

/// Buffers are multiples of this: a model that is loaded again, or another of similar size, finds a free one.
const GRAIN: usize = 1 << 20;

/// The pinned memory of one process, for all its GPUs. Allocating pages takes milliseconds, so freed buffers are kept
/// for the next model.
#[derive(Clone)]
pub struct PinnedPool(Arc<Shared>);

struct Shared {
    bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Allocated from the system, in use or free.
    bytes: u64,
    /// By length.
    free: BTreeMap<usize, Vec<Block>>,
}

/// A piece of pinned memory.
struct Block {
    at: NonNull<u8>,
    bytes: usize,
    /// The context that has to free it.
    context: Arc<CudaContext>,
}

// SAFETY: the memory belongs to the process, not to a thread, and the block is its one owner.
unsafe impl Send for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        let freed = self.context.bind_to_thread().and_then(|()| {
            // SAFETY: it came from `malloc_host`, and nothing uses it any more (rule 1).
            unsafe { result::free_host(self.at.as_ptr().cast()) }
        });
        if let Err(error) = freed {
            tracing::warn!(error = %device_error(error), "pinned memory was not freed");
        }
    }
}

/// A buffer of the pool; it goes back when it is dropped.
pub(super) struct PinnedBuffer {
    pool: Arc<Shared>,
    /// None only while it is dropped.
    block: Option<Block>,
}

impl PinnedPool {
    /// An empty pool that allocates at most this many bytes.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Shared { bytes_max, state: Mutex::default() }))
    }

    /// Bytes taken from the system.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.lock().bytes
    }

    /// A buffer of at least this many bytes, zeroed when it is new.
    pub(super) fn take(&self, context: &Arc<CudaContext>, bytes: usize) -> Result<PinnedBuffer, DeviceError> {
        let bytes = bytes.max(1).next_multiple_of(GRAIN);
        let pool = Arc::clone(&self.0);
        let mut state = self.0.lock();
        if let Some(block) = state.free.get_mut(&bytes).and_then(Vec::pop) {
            return Ok(PinnedBuffer { pool, block: Some(block) });
        }
        if state.bytes + bytes as u64 > self.0.bytes_max {
            // Frees unused buffers to make room.
            let given_back = std::mem::take(&mut state.free);
            state.bytes -= given_back.iter().map(|(bytes, blocks)| (bytes * blocks.len()) as u64).sum::<u64>();
        }
        if state.bytes + bytes as u64 > self.0.bytes_max {
            let (has, max) = (state.bytes >> 20, self.0.bytes_max >> 20);
            let words = format!("{} MB of pinned host memory, of which {has} MB of {max} MB are taken", bytes >> 20);
            return Err(DeviceError::OutOfMemory(words));
        }
        let block = Block::new(context, bytes)?;
        state.bytes += bytes as u64;
        Ok(PinnedBuffer { pool, block: Some(block) })
    }
}

impl fmt::Debug for PinnedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedPool").field("bytes", &self.bytes()).field("bytes_max", &self.0.bytes_max).finish()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Block {
    fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, DeviceError> {
        context.bind_to_thread().map_err(device_error)?;
        // For all GPUs of the process; and cached, unlike what cudarc's own call gives, since the host reads outputs
        // from it. SAFETY: it is owned by the block from here on.
        let at = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) }.map_err(device_error)?;
        let at = NonNull::new(at.cast::<u8>())
            .ok_or_else(|| DeviceError::OutOfMemory("the driver gave no pinned memory".into()))?;
        // SAFETY: the memory is `bytes` long. Every later read is of bytes that were written.
        unsafe { at.as_ptr().write_bytes(0, bytes) };
        Ok(Self { at, bytes, context: Arc::clone(context) })
    }
}

impl PinnedBuffer {
    /// The whole block.
    pub(super) fn as_slice(&self) -> &[u8] {
        match &self.block {
            // SAFETY: so long, initialised, and the device writes it only between two events that the overlap keeps
            // apart from this use (rule 1).
            Some(block) => unsafe { std::slice::from_raw_parts(block.at.as_ptr(), block.bytes) },
            None => &[],
        }
    }

    /// All of it, to write.
    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.block {
            // SAFETY: as above, and `self` is borrowed for as long.
            Some(block) => unsafe { std::slice::from_raw_parts_mut(block.at.as_ptr(), block.bytes) },
            None => &mut [],
        }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.pool.lock().free.entry(block.bytes).or_default().push(block);
        }
    }
}

impl fmt::Debug for PinnedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pinned bytes", self.as_slice().len())
    }
}
