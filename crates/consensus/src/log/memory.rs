//! An engine without a disk, for tests and simulations.

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::engine::{Batch, LogEngine, Slot};

#[derive(Debug, Default)]
struct Values {
    entries: BTreeMap<u64, Bytes>,
    slots: BTreeMap<Slot, Bytes>,
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
        let mut values = self.values();
        if let Some(range) = batch.remove {
            values.entries.retain(|index, _| !range.contains(index));
        }
        values.entries.extend(batch.entries);
        values.slots.extend(batch.slots);
        Ok(())
    }

    fn barrier(&self) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, range: RangeInclusive<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>> {
        let values = self.values();
        let mut found = Vec::new();
        let mut bytes = 0;
        if range.is_empty() {
            return Ok(found);
        }
        for (index, frame) in values.entries.range(range) {
            bytes += frame.len();
            found.push((*index, frame.clone()));
            if bytes > bytes_max {
                break;
            }
        }
        Ok(found)
    }

    fn slot(&self, slot: Slot) -> io::Result<Option<Bytes>> {
        Ok(self.values().slots.get(&slot).cloned())
    }

    fn bounds(&self) -> io::Result<Option<(u64, u64)>> {
        let values = self.values();
        let first = values.entries.first_key_value().map(|(index, _)| *index);
        let last = values.entries.last_key_value().map(|(index, _)| *index);
        Ok(first.zip(last))
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }
}
