//! Known bugs of engines and of their users, planted on purpose: the crash suite must find each of them.

use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::engine::{Batch, LogEngine, Slot};
use crate::plant::Plant;

/// An engine with a bug.
#[derive(Debug)]
pub(crate) struct FaultyEngine {
    inner: Arc<dyn LogEngine>,
    plant: Plant,
    held: Mutex<Held>,
}

/// What the bug withholds.
#[derive(Debug, Default)]
struct Held {
    /// A barrier that was promised and not issued.
    owes_barrier: bool,
    /// Whether only votes were written since the last barrier.
    only_votes: bool,
    /// A purge mark that was promised and not written.
    purged: Option<Bytes>,
}

impl FaultyEngine {
    pub(crate) fn new(inner: Arc<dyn LogEngine>, plant: Plant) -> Self {
        Self { inner, plant, held: Mutex::new(Held { only_votes: true, ..Held::default() }) }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogEngine for FaultyEngine {
    fn write(&self, mut batch: Batch) -> io::Result<()> {
        let mut held = self.held();
        held.only_votes &= batch.entries.is_empty()
            && batch.remove.is_none()
            && batch.slots.iter().all(|(slot, _)| matches!(slot, Slot::Vote | Slot::Step));
        match self.plant {
            Plant::AckBeforeSync if std::mem::take(&mut held.owes_barrier) => self.inner.barrier()?,
            Plant::PurgeBeforeMark => {
                let marks = batch.slots.iter().position(|(slot, _)| *slot == Slot::Purged);
                if let Some(at) = marks {
                    held.purged = Some(batch.slots.remove(at).1);
                }
            }
            Plant::EndMarkApart => {
                let ends = batch.slots.iter().rposition(|(slot, _)| *slot == Slot::Next);
                if let Some(at) = ends.filter(|_| !batch.entries.is_empty()) {
                    let slots = vec![batch.slots.remove(at)];
                    self.inner.write(Batch { slots, ..Batch::default() })?;
                }
            }
            _ => {}
        }
        self.inner.write(batch)
    }

    fn barrier(&self) -> io::Result<()> {
        let mut held = self.held();
        if let Some(mark) = held.purged.take() {
            self.inner.barrier()?;
            self.inner.write(Batch { slots: vec![(Slot::Purged, mark)], ..Batch::default() })?;
        }
        match self.plant {
            Plant::AckBeforeSync => {
                held.owes_barrier = true;
                Ok(())
            }
            Plant::LostVoteSync if held.only_votes => Ok(()),
            Plant::SwallowedSyncError => {
                if let Err(error) = self.inner.barrier() {
                    tracing::warn!(%error, "planted: the error is swallowed");
                }
                Ok(())
            }
            _ => {
                held.only_votes = true;
                self.inner.barrier()
            }
        }
    }

    fn read(&self, range: RangeInclusive<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>> {
        self.inner.read(range, bytes_max)
    }

    fn slot(&self, slot: Slot) -> io::Result<Option<Bytes>> {
        self.inner.slot(slot)
    }

    fn bounds(&self) -> io::Result<Option<(u64, u64)>> {
        self.inner.bounds()
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        self.inner.disk_bytes()
    }
}
