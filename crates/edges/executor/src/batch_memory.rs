//! The memory that batches of all models on the CPU take turns with, and its limit.
//!
//! A session of ONNX Runtime keeps what its largest batch took, and each has its own: of three models that run in turn
//! the process then holds three times the memory, and no one has a limit. Here all sessions have one arena. What one
//! batch gave back the next one takes, whatever its model, so that the largest counts and not the sum, as everybody
//! plans (DESIGN section 9). An allocation beyond the limit fails; that fails the batch, and nothing else.

// The calls by which an arena is made and shared are not in the safe part of the crate `ort`.
#![allow(unsafe_code)]

use std::ptr;

use ort::environment::Environment;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::Session;
use ort::value::Tensor;
use ort::{AsPointer, sys};

/// ONNX Runtime's number for an arena that grows by what is asked for. By default it doubles, and what it takes in
/// advance would count.
const SAME_AS_REQUESTED: i32 = 1;
/// Its number for settings that are left to it.
const AS_IT_LIKES: i32 = -1;

/// A part of the limit that batches may not have: a model takes so much besides its batches. Nothing is ever written to
/// it, so it is no physical memory.
pub(crate) type KeptClear = Tensor<u8>;

/// Makes all sessions of the environment that ask for it share one arena of at most so many bytes; 0 is no limit.
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
    // SAFETY: it was made above, and nobody has it any more.
    unsafe { (ort::api().ReleaseArenaCfg)(config) };
    checked(registered)
}

/// Keeps so many bytes of the limit clear of batches, by an arena that the session shares.
pub(crate) fn keep_clear(session: &Session, bytes: u64) -> ort::Result<KeptClear> {
    let arena = Allocator::new(session, on_the_cpu()?)?;
    Tensor::new(&arena, [usize::try_from(bytes).unwrap_or(usize::MAX)])
}

fn on_the_cpu() -> ort::Result<MemoryInfo<'static>> {
    MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Arena, MemoryType::Default)
}

fn checked(status: sys::OrtStatusPtr) -> ort::Result<()> {
    // SAFETY: it is what a call of ONNX Runtime has just returned, and is used once.
    unsafe { ort::Error::result_from_status(status) }
}
