//! The C heap, from which ONNX Runtime takes its memory.

// The C library's own call.
#![allow(unsafe_code)]

/// Blocks from this size on are mapped one by one: weights, and the files that they are read from. Batches do not pay
/// for it: their memory is in arenas, which keep it.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: nix::libc::c_int = 1 << 20;

/// From now on the system gets large blocks back when they are freed, in the whole process. By itself the C library
/// raises the size from which it maps blocks, and what it keeps, with the first large one that is freed, so that what
/// loading a model has used stays with the process.
pub(crate) fn give_large_blocks_back() {
    #[cfg(target_env = "gnu")]
    {
        use nix::libc::{M_MMAP_THRESHOLD, mallopt};
        // SAFETY: it sets a number, under the C library's own lock.
        let is_set = unsafe { mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN) } != 0;
        if !is_set {
            tracing::warn!("the C library keeps memory that models have freed");
        }
    }
}
