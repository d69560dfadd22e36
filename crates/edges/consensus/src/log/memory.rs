//! An engine without a disk, for tests and simulations.

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::engine::{Batch, LogEngine, Slot};

/// What an engine holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    entries: BTreeMap<u64, Bytes>,
    slots: BTreeMap<Slot, Bytes>,
}

impl Values {
    pub(crate) fn apply(&mut self, batch: Batch) {
        if let Some(range) = batch.remove {
            self.entries.retain(|index, _| !range.contains(index));
        }
        self.entries.extend(batch.entries);
        self.slots.extend(batch.slots);
    }

    pub(crate) fn read(&self, range: RangeInclusive<u64>, bytes_max: usize) -> Vec<(u64, Bytes)> {
        let mut found = Vec::new();
        let mut bytes = 0;
        if range.is_empty() {
            return found;
        }
        for (index, frame) in self.entries.range(range) {
            bytes += frame.len();
            found.push((*index, frame.clone()));
            if bytes > bytes_max {
                break;
            }
        }
        found
    }

    pub(crate) fn slot(&self, slot: Slot) -> Option<Bytes> {
        self.slots.get(&slot).cloned()
    }

    pub(crate) fn bounds(&self) -> Option<(u64, u64)> {
        let first = self.entries.first_key_value().map(|(index, _)| *index);
        let last = self.entries.last_key_value().map(|(index, _)| *index);
        first.zip(last)
    }
}

/// Keeps everything in memory and forgets it when dropped.
#[derive(Debug, Default)]
pub(crate) struct MemoryEngine {
    values: Mutex<Values>,
}

impl MemoryEngine {
    fn values(&self) -> MutexGuard<'_, Values> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogEngine for MemoryEngine {
    fn write(&self, batch: Batch) -> io::Result<()> {
        self.values().apply(batch);
        Ok(())
    }

    fn barrier(&self) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, range: RangeInclusive<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>> {
        Ok(self.values().read(range, bytes_max))
    }

    fn slot(&self, slot: Slot) -> io::Result<Option<Bytes>> {
        Ok(self.values().slot(slot))
    }

    fn bounds(&self) -> io::Result<Option<(u64, u64)>> {
        Ok(self.values().bounds())
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }
}
