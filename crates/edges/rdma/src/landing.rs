//! Memory that other hosts' data lands in, and how many bytes of it may be on their way.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Broken;
use crate::verbs::Arena;

/// Bytes of READs that one process may have in flight: answers of many owners at once have to fit the switch's buffers
/// before its port (incast), and 1 MiB is some 80 µs of a 100 Gb/s port.
pub(crate) const CREDITS_BYTES: usize = 1 << 20;
/// READs of one owner get at most half of them: an owner that does not answer keeps its credits until its connection
/// breaks, which takes seconds, and the other owners go on meanwhile.
const CREDITS_OF_ONE_OWNER_BYTES: usize = CREDITS_BYTES / 2;
/// The least cost of a READ, which bounds their number to 64: fewer than one queue pair takes.
pub(crate) const CREDIT_BYTES: usize = 16 << 10;

/// Memory for data read from other hosts, and the credits of all READs of this process; a handle.
#[derive(Clone, Debug)]
pub struct Landing {
    pub(crate) arena: Arc<Arena>,
    of_all: Arc<Semaphore>,
    of_one: Arc<Semaphore>,
}

/// The credits of one READ: its owner's share, and the total.
pub(crate) type Credits = [OwnedSemaphorePermit; 2];

fn credits_of(bytes: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(bytes / CREDIT_BYTES))
}

impl Landing {
    pub(crate) fn new(arena: Arc<Arena>) -> Self {
        Self { arena, of_all: credits_of(CREDITS_BYTES), of_one: credits_of(CREDITS_OF_ONE_OWNER_BYTES) }
    }

    /// This landing for READs of another owner.
    pub(crate) fn of_one_owner(&self) -> Self {
        Self { of_one: credits_of(CREDITS_OF_ONE_OWNER_BYTES), ..self.clone() }
    }

    /// Waits until a READ of this many bytes may be sent.
    pub(crate) async fn credits(&self, bytes: usize) -> Result<Credits, Broken> {
        let cost = bytes.div_ceil(CREDIT_BYTES).clamp(1, CREDITS_OF_ONE_OWNER_BYTES / CREDIT_BYTES) as u32;
        // A READ that waits for its owner's share takes nothing from the others.
        let of_one = Arc::clone(&self.of_one).acquire_many_owned(cost).await.map_err(|_| Broken::Ended)?;
        let of_all = Arc::clone(&self.of_all).acquire_many_owned(cost).await.map_err(|_| Broken::Ended)?;
        Ok([of_one, of_all])
    }
}
