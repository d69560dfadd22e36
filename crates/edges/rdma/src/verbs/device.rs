//! An open device, its protection domain, and the port that is used.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::path::Path;
use std::ptr::NonNull;

use ibverbs_sys as ffi;

use super::checked;
use crate::error::RdmaError;
use crate::port::{DEVICES, Port};
use crate::purpose::Purpose;

/// An open device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(super) context: NonNull<ffi::ibv_context>,
    pub(super) domain: NonNull<ffi::ibv_pd>,
    pub(crate) port: Port,
    /// Packet size of the port, as a code.
    pub(crate) mtu: u8,
    /// Completions that one queue may hold.
    pub(crate) completions_max: u32,
}

// SAFETY: V5; the value owns what it points to.
unsafe impl Send for Device {}
// SAFETY: V5.
unsafe impl Sync for Device {}

impl Device {
    /// The device of that name, or the first that has an active port.
    pub(crate) fn open(name: Option<&str>, purpose: Purpose) -> Result<Self, RdmaError> {
        let port = Port::find(Path::new(DEVICES), name)?;
        let context = open_context(&port.device)?;
        // SAFETY: the context was just opened.
        let domain = unsafe { ffi::ibv_alloc_pd(context.as_ptr()) };
        let Some(domain) = NonNull::new(domain) else {
            let error = RdmaError::last("no protection domain");
            // SAFETY: nothing was made of this context.
            unsafe { ffi::ibv_close_device(context.as_ptr()) };
            return Err(error);
        };
        let mut device = Self { context, domain, port, mtu: 0, completions_max: 0 };
        let mut attributes = ffi::ibv_device_attr::default();
        // SAFETY: V1 for the context; the other is a value of this frame.
        let code = unsafe { ffi::ibv_query_device(context.as_ptr(), &mut attributes) };
        checked(code).map_err(|error| RdmaError::system("its properties are not known", error))?;
        if purpose.reads() && attributes.device_cap_flags & ffi::IBV_DEVICE_MEM_WINDOW_TYPE_2B == 0 {
            return Err(RdmaError::NoWindows(device.port.device.clone()));
        }
        device.completions_max = u32::try_from(attributes.max_cqe).unwrap_or(0);
        let mut attributes = ffi::ibv_port_attr::default();
        let place: *mut ffi::ibv_port_attr = &mut attributes;
        // SAFETY: V1; the function fills the beginning of the structure, whose old name it has in the library.
        let code = unsafe { ffi::ibv_query_port(context.as_ptr(), device.port.number, place.cast()) };
        checked(code).map_err(|error| RdmaError::system("its port is not known", error))?;
        device.mtu = u8::try_from(attributes.active_mtu).unwrap_or(1).clamp(1, 5);
        Ok(device)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: V1: whatever was made in this domain kept the device alive, so nothing is left.
        let code = unsafe { ffi::ibv_dealloc_pd(self.domain.as_ptr()) };
        debug_assert_eq!(code, 0, "the domain is still in use");
        // SAFETY: the domain was the last thing made of the context.
        unsafe { ffi::ibv_close_device(self.context.as_ptr()) };
    }
}

fn open_context(name: &str) -> Result<NonNull<ffi::ibv_context>, RdmaError> {
    let mut count = 0;
    // SAFETY: the list is freed below.
    let list = unsafe { ffi::ibv_get_device_list(&mut count) };
    if list.is_null() {
        return Err(RdmaError::last("libibverbs lists no devices"));
    }
    // SAFETY: the library returns that many pointers.
    let devices = unsafe { std::slice::from_raw_parts(list, usize::try_from(count).unwrap_or(0)) };
    let named = |&&device: &&*mut ffi::ibv_device| {
        // SAFETY: the device is of a list that was not freed yet.
        let found = unsafe { ffi::ibv_get_device_name(device) };
        // SAFETY: the library returns a string that lives as long as the list.
        !found.is_null() && unsafe { CStr::from_ptr(found) }.to_bytes() == name.as_bytes()
    };
    let context = match devices.iter().find(named) {
        // SAFETY: as above.
        Some(&device) => NonNull::new(unsafe { ffi::ibv_open_device(device) })
            .ok_or_else(|| RdmaError::last("the device cannot be opened")),
        None => Err(RdmaError::system("libibverbs has no driver for the device", io::ErrorKind::NotFound.into())),
    };
    // SAFETY: the list is not used any more; a device that is open stays.
    unsafe { ffi::ibv_free_device_list(list) };
    context
}
