//! Memory that others may read, and the windows through which each of them does.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ibverbs_sys as ffi;

use super::Device;
use crate::error::RdmaError;
use crate::key::Key;

/// Memory that is shown to others, who may read it at any time.
pub trait Words: Send + Sync + 'static {
    /// The words. They stay where they are as long as this value lives.
    fn words(&self) -> &[AtomicU64];
}

impl Words for symphony_shared_memory::Pool {
    fn words(&self) -> &[AtomicU64] {
        Self::words(self)
    }
}

/// Registered memory. No peer may read it unless a [`Window`] lets it.
pub(crate) struct Region {
    /// Ends after the region.
    _words: Arc<dyn Words>,
    device: Arc<Device>,
    pub(super) region: NonNull<ffi::ibv_mr>,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

// SAFETY: V5; the words are atomic (V3).
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Region {
    pub(crate) fn new(device: &Arc<Device>, words: Arc<dyn Words>) -> Result<Self, RdmaError> {
        let all = words.words();
        let (address, bytes) = (all.as_ptr(), size_of_val(all));
        let access = ffi::ibv_access_flags::IBV_ACCESS_MW_BIND.0 as i32;
        // SAFETY: V1 for the domain. The words stay as long as they are borrowed from the value that is kept below, and
        // that is only ever shared; the device reads them as it reads any memory that changes.
        let region = unsafe { ffi::ibv_reg_mr(device.domain.as_ptr(), address.cast_mut().cast(), bytes, access) };
        let region = NonNull::new(region).ok_or_else(|| RdmaError::pinned(bytes))?;
        let (address, bytes) = (address as u64, bytes as u64);
        Ok(Self { _words: words, device: Arc::clone(device), region, address, bytes })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: V1; windows keep the region alive, so none is left. The words are dropped after this.
        let code = unsafe { ffi::ibv_dereg_mr(self.region.as_ptr()) };
        debug_assert_eq!(code, 0, "the region is still in use on {}", self.device.port.device);
    }
}

/// A key to a region, good on one queue pair from the moment at which it is bound to it, and until this is dropped.
#[derive(Debug)]
pub(crate) struct Window {
    pub(super) region: Arc<Region>,
    pub(super) window: NonNull<ffi::ibv_mw>,
    pub(crate) key: Key,
}

// SAFETY: V5.
unsafe impl Send for Window {}
// SAFETY: V5.
unsafe impl Sync for Window {}

impl Window {
    pub(crate) fn new(region: &Arc<Region>) -> io::Result<Self> {
        let device = &region.device;
        // SAFETY: V1.
        let operations = unsafe { device.context.as_ref() }.ops;
        let make = operations.alloc_mw.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: V1; the function is the driver's.
        let window = unsafe { make(device.domain.as_ptr(), ffi::IBV_MW_TYPE_2) };
        let window = NonNull::new(window).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: it was just made.
        let fresh = unsafe { window.as_ref() }.rkey;
        // The lowest byte is the owner's to choose, and has to be another than before.
        let key = Key((fresh & !0xff) | (fresh.wrapping_add(1) & 0xff));
        Ok(Self { region: Arc::clone(region), window, key })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: V1.
        let operations = unsafe { self.region.device.context.as_ref() }.ops;
        let Some(end) = operations.dealloc_mw else { return };
        // SAFETY: V1: made by this value, and ended once.
        let code = unsafe { end(self.window.as_ptr()) };
        debug_assert_eq!(code, 0, "a window does not end");
    }
}
