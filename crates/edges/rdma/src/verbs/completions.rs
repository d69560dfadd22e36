//! A queue in which the device reports completed work.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use ibverbs_sys as ffi;

use super::{Device, checked};
use crate::error::RdmaError;
use crate::interrupted::uninterrupted;

/// Completions that are taken at a time.
pub(crate) const COMPLETIONS_AT_ONCE: usize = 32;

/// Work that a device is done with, well or not (V4).
#[derive(Debug)]
pub(crate) struct Completion {
    pub(super) id: u64,
    pub(super) queue_pair: u32,
    /// 0 for success.
    pub(super) status: u32,
    pub(super) bytes: usize,
}

impl Completion {
    /// The queue pair whose work it was.
    pub(crate) const fn queue_pair(&self) -> u32 {
        self.queue_pair
    }
}

/// A queue of completions, with a channel that announces them.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pub(super) device: Arc<Device>,
    channel: NonNull<ffi::ibv_comp_channel>,
    pub(super) queue: NonNull<ffi::ibv_cq>,
}

// SAFETY: V5.
unsafe impl Send for CompletionQueue {}
// SAFETY: V5.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    pub(crate) fn new(device: &Arc<Device>, completions: u32) -> Result<Self, RdmaError> {
        // SAFETY: V1.
        let channel = unsafe { ffi::ibv_create_comp_channel(device.context.as_ptr()) };
        let channel = NonNull::new(channel).ok_or_else(|| RdmaError::last("no channel for completions"))?;
        let count = i32::try_from(completions).unwrap_or(i32::MAX);
        // SAFETY: V1; the channel was just made.
        let queue = unsafe { ffi::ibv_create_cq(device.context.as_ptr(), count, null_mut(), channel.as_ptr(), 0) };
        let Some(queue) = NonNull::new(queue) else {
            let error = RdmaError::last("no queue for completions");
            // SAFETY: made above, and no queue uses it.
            unsafe { ffi::ibv_destroy_comp_channel(channel.as_ptr()) };
            return Err(error);
        };
        Ok(Self { device: Arc::clone(device), channel, queue })
    }

    /// Takes the completions that have come, without waiting. Whether there was anything.
    pub(crate) fn poll(&self, into: &mut Vec<Completion>) -> io::Result<bool> {
        // SAFETY: V1.
        let poll = unsafe { self.device.context.as_ref() }.ops.poll_cq.ok_or(io::ErrorKind::Unsupported)?;
        let mut found = [ffi::ibv_wc::default(); COMPLETIONS_AT_ONCE];
        // SAFETY: V1; `found` has that many places.
        let count = unsafe { poll(self.queue.as_ptr(), COMPLETIONS_AT_ONCE as i32, found.as_mut_ptr()) };
        let count = usize::try_from(count).map_err(|_| io::Error::other("completions cannot be read"))?;
        into.extend(found[..count.min(COMPLETIONS_AT_ONCE)].iter().map(|found| Completion {
            id: found.wr_id(),
            queue_pair: found.qp_num,
            status: found.error().map_or(0, |(status, _)| status),
            bytes: found.len(),
        }));
        Ok(count > 0)
    }

    /// The next completion is to be signalled on the channel. What came before may not be: poll once more.
    pub(crate) fn arm(&self) -> io::Result<()> {
        // SAFETY: V1.
        let arm = unsafe { self.device.context.as_ref() }.ops.req_notify_cq.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: V1.
        checked(unsafe { arm(self.queue.as_ptr(), 0) })
    }

    /// Becomes readable when there is an event.
    pub(crate) fn channel(&self) -> BorrowedFd<'_> {
        // SAFETY: V1.
        let descriptor = unsafe { self.channel.as_ref() }.fd;
        // SAFETY: the channel owns the descriptor, and lives as long as this value is borrowed.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }

    /// Takes an event; waits if there is none.
    pub(crate) fn take_event(&self) -> io::Result<()> {
        let (mut queue, mut context) = (null_mut(), null_mut());
        uninterrupted(|| {
            // SAFETY: V1; the others are values of this frame.
            let code = unsafe { ffi::ibv_get_cq_event(self.channel.as_ptr(), &mut queue, &mut context) };
            // Unlike its sisters it returns -1, and leaves the number of the error where the system does.
            if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        })?;
        // SAFETY: one event of this queue was taken, the only one of the channel. Without this its end would wait for
        // ever.
        unsafe { ffi::ibv_ack_cq_events(self.queue.as_ptr(), 1) };
        Ok(())
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: V1: queue pairs keep it alive, so none is left.
        let code = unsafe { ffi::ibv_destroy_cq(self.queue.as_ptr()) };
        debug_assert_eq!(code, 0, "the queue is still in use");
        // SAFETY: its only queue has ended.
        unsafe { ffi::ibv_destroy_comp_channel(self.channel.as_ptr()) };
    }
}
