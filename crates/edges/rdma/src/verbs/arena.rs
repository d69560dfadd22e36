//! Memory that the device may write: given out in pieces, each with one owner.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use ibverbs_sys as ffi;
use symphony_shared_memory::{Block, Blocks};

use super::Device;
use crate::error::RdmaError;

/// The granularity of pieces, in bytes.
const UNIT_BYTES: usize = 1 << 10;
/// Pages of the system.
const PAGE_BYTES: usize = 4096;

/// Registered memory of this process. Only work of this process may read or write it.
#[derive(Debug)]
pub(crate) struct Arena {
    device: Arc<Device>,
    region: NonNull<ffi::ibv_mr>,
    base: NonNull<u8>,
    layout: Layout,
    free: Mutex<Blocks>,
}

// SAFETY: V5 for the region; bytes are reached through pieces, of which no two overlap.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena of at least `bytes` bytes. They stay in memory: the system may refuse more than its limit of locked
    /// memory.
    pub(crate) fn new(device: &Arc<Device>, bytes: usize) -> Result<Arc<Self>, RdmaError> {
        let bytes = bytes.max(UNIT_BYTES).next_multiple_of(PAGE_BYTES);
        let layout = Layout::from_size_align(bytes, PAGE_BYTES)
            .map_err(|_| RdmaError::system("no memory", std::io::ErrorKind::OutOfMemory.into()))?;
        // SAFETY: the size is not 0.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })
            .ok_or_else(|| RdmaError::system("no memory", std::io::ErrorKind::OutOfMemory.into()))?;
        let access = ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as i32;
        // SAFETY: V1 for the domain; the memory was just taken, and is freed after the region has ended.
        let region = unsafe { ffi::ibv_reg_mr(device.domain.as_ptr(), base.as_ptr().cast(), bytes, access) };
        let Some(region) = NonNull::new(region) else {
            let error = RdmaError::pinned(bytes);
            // SAFETY: taken above with this layout, and not used any more.
            unsafe { dealloc(base.as_ptr(), layout) };
            return Err(error);
        };
        let free = Mutex::new(Blocks::new(bytes / UNIT_BYTES));
        Ok(Arc::new(Self { device: Arc::clone(device), region, base, layout, free }))
    }

    /// A piece of at least `bytes` bytes; none if there is none left.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<Piece> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let block = free.take(bytes.div_ceil(UNIT_BYTES))?;
        Some(Piece { arena: Arc::clone(self), block })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: V1; pieces keep the arena alive, so no work on it is posted.
        let code = unsafe { ffi::ibv_dereg_mr(self.region.as_ptr()) };
        debug_assert_eq!(code, 0, "the region is still in use on {}", self.device.port.device);
        if code == 0 {
            // SAFETY: taken with this layout; the device has let go of it.
            unsafe { dealloc(self.base.as_ptr(), self.layout) };
        }
    }
}

/// Part of an arena, with one owner (V2).
#[derive(Debug)]
pub(crate) struct Piece {
    arena: Arc<Arena>,
    block: Block,
}

impl Piece {
    /// How many bytes it has: as many as were asked for, or more.
    pub(crate) const fn length(&self) -> usize {
        self.block.units() * UNIT_BYTES
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the block lies in the arena, is initialised, belongs to this value alone, and no work on it is posted
        // (V2).
        unsafe { std::slice::from_raw_parts(self.start(), self.length()) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this value is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.length()) }
    }

    /// Its first `length` bytes as the device knows them; less if it is shorter.
    pub(super) fn span(&self, length: usize) -> ffi::ibv_sge {
        // SAFETY: V1.
        let region = unsafe { self.arena.region.as_ref() };
        ffi::ibv_sge { addr: self.start() as u64, length: length.min(self.length()) as u32, lkey: region.lkey }
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: blocks lie in the arena.
        unsafe { self.arena.base.as_ptr().add(self.block.first * UNIT_BYTES) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.arena.free.lock().unwrap_or_else(PoisonError::into_inner).give_back(self.block);
    }
}
