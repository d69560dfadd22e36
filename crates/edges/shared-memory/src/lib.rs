//! A pool of bytes that one process writes and other processes of the same host read without a message.
//!
//! [`Pool::put`] stores bytes under a number; [`PoolView::read`] copies the bytes of a number out, and returns an
//! error if they are gone, were replaced meanwhile, or are damaged. The memory is a memfd, sealed so that only its
//! maker can write it and no process can shorten it; it vanishes with the last process that holds it.
//!
//! [`RingSender`] and [`RingReceiver`] are the two ends of a stream of bytes between two processes, over memory of the
//! same kind.
//!
//! [`RemoteLayout`] is the same for a pool in another host's memory, read over a network.

mod blocks;
mod buffers;
mod checksum;
mod copy;
mod layout;
mod memory;
mod pool;
mod remote;
mod ring;
mod view;

pub use blocks::{Block, Blocks};
pub use layout::{ENTRIES_MAX, POOL_BYTES_MAX, POOL_BYTES_MIN, Unreadable};
pub use memory::{Memory, OpenError};
pub use pool::{Placed, Pool, PoolError};
pub use remote::{ENTRY_BYTES, EntryClaim, RemoteLayout, why_wrong};
pub use ring::{
    Available, Moved, RING_BYTES_MAX, RING_BYTES_MIN, RingError, RingMemory, RingReceiver, RingSender, blank_ring, ends,
};
pub use view::PoolView;
