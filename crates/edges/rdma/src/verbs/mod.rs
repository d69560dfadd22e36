//! What speaks to libibverbs: the only files with unsafe code. What they offer is safe by these rules:
//!
//! - V1. Every object of the library is owned by one value, made in its constructor and destroyed in its drop; it keeps
//!   alive what the library wants alive meanwhile (a queue its device, a region its device and its memory).
//! - V2. Memory that a device may write is in a [`Piece`], which has one owner. While work on it is posted, the queue
//!   pair owns it, and gives it back for a [`Completion`] that says it is done, or drops it after the queue pair has
//!   been destroyed. So there is no reference to bytes that a device may change.
//! - V3. Memory that others may read is atomic words ([`Words`]), which this process may change at any time.
//! - V4. A [`Completion`] is only made of what the library says, and cannot be copied.
//! - V5. The library may be called by several threads at a time, as its documentation says.

mod arena;
mod completions;
mod device;
mod queue_pair;
mod region;

pub(crate) use arena::{Arena, Piece};
pub(crate) use completions::{COMPLETIONS_AT_ONCE, Completion, CompletionQueue};
pub(crate) use device::Device;
pub(crate) use queue_pair::{Finished, Kind, QueuePair};
pub use region::Words;
pub(crate) use region::{Region, Window};

use std::io;

/// What the library returns: 0, or the number of an error.
fn checked(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.abs())) }
}
