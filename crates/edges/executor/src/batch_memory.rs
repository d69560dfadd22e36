//! One memory arena for the batches of all models on the CPU, and its limit.
//!
//! A session of ONNX Runtime keeps the memory of its largest batch, and each session has its own: three models that
//! run in turn hold three times the memory, and nothing limits the sum. Here all sessions share one arena. Memory
//! freed by one batch is used by the next, of whatever model, so that the largest batch counts and not the sum, as the
//! partition plan assumes. An allocation beyond the limit fails only its own batch.

// The calls by which an arena is made and shared are not in the safe part of the crate `ort`.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

use ort::environment::Environment;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::Session;
use ort::{AsPointer, sys};

/// ONNX Runtime's code for an arena that grows by the requested size. By default it doubles, and memory taken in
/// advance would count.
const SAME_AS_REQUESTED: i32 = 1;
/// Its code for a default setting.
const AS_IT_LIKES: i32 = -1;

/// A part of the limit that batches must not use: a model's memory besides its batches. It is never written, so it
/// takes hardly any physical memory; a tensor of `ort` would be filled with zeros.
pub(crate) struct KeptClear {
    arena: Allocator,
    block: *mut c_void,
}

// SAFETY: `Allocator` is `Send`, and nothing reads or writes the block.
unsafe impl Send for KeptClear {}

impl Drop for KeptClear {
    fn drop(&mut self) {
        // SAFETY: it is a block of this arena, and goes once.
        unsafe { self.arena.free(self.block) }
    }
}

/// Makes all sessions of the environment that ask for it share one arena of at most this many bytes; 0 is no limit.
pub(crate) fn share(environment: &Environment, limit_bytes: u64) -> ort::Result<()> {
    let info = on_the_cpu()?;
    let limit = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
    let mut config = ptr::null_mut();
    // SAFETY: `config` is written to, and given back below.
    let made = unsafe { (ort::api().CreateArenaCfg)(limit, SAME_AS_REQUESTED, AS_IT_LIKES, AS_IT_LIKES, &mut config) };
    checked(made)?;
    // SAFETY: all three are alive; the configuration is copied. The environment takes a lock.
    let registered =
        unsafe { (ort::api().CreateAndRegisterAllocator)(environment.ptr().cast_mut(), info.ptr(), config) };
    // SAFETY: it was made above, and nothing refers to it any more.
    unsafe { (ort::api().ReleaseArenaCfg)(config) };
    checked(registered)
}

/// Reserves this many bytes of the limit against batches, in the session's shared arena.
pub(crate) fn keep_clear(session: &Session, bytes: u64) -> ort::Result<KeptClear> {
    let arena = Allocator::new(session, on_the_cpu()?)?;
    let block = arena.alloc::<u8>(usize::try_from(bytes).unwrap_or(usize::MAX))?.into_raw();
    Ok(KeptClear { arena, block })
}

fn on_the_cpu() -> ort::Result<MemoryInfo<'static>> {
    MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Arena, MemoryType::Default)
}

fn checked(status: sys::OrtStatusPtr) -> ort::Result<()> {
    // SAFETY: it is what a call of ONNX Runtime has just returned, and is used once.
    unsafe { ort::Error::result_from_status(status) }
}
