//! A pool of bytes that one process writes and other processes of the same host read, without asking.
//!
//! [`Pool::put`] keeps bytes under a number; [`PoolView::read`] finds them by that number, copies them out, and says
//! nothing rather than something wrong: if they are gone, replaced meanwhile, or damaged. The memory is a memfd, sealed
//! so that nobody but its maker can write it and nobody can shorten it; it vanishes with the last process that holds
//! it.
//!
//! [`RingSender`] and [`RingReceiver`] are the two ends of a stream of bytes between two processes, over memory of the
//! same kind.
//!
//! [`RemoteLayout`] is the same for a pool in another host's memory, of which a network fetches bytes.

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
pub use layout::{ENTRIES_MAX, POOL_BYTES_MAX, POOL_BYTES_MIN};
pub use memory::{Memory, OpenError};
pub use pool::{Placed, Pool, PoolError};
pub use remote::{ENTRY_BYTES, Found, RemoteLayout, why_wrong};
pub use ring::{
    Available, Moved, RING_BYTES_MAX, RING_BYTES_MIN, RingError, RingMemory, RingReceiver, RingSender, blank_ring, ends,
};
pub use view::{PoolView, Unreadable};
