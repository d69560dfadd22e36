//! The memory of an emulated GPU: loading fails where a real one has none left.

use std::sync::{Arc, Mutex, PoisonError};

/// Memory that emulated executors take while they live.
#[derive(Debug)]
pub struct EmulatedMemory {
    /// Without a limit if none.
    capacity_bytes: Option<u64>,
    taken_bytes: Mutex<u64>,
}

/// Memory that is taken; dropping it gives it back.
#[derive(Debug)]
pub struct TakenMemory {
    of: Arc<EmulatedMemory>,
    bytes: u64,
}

/// A model does not fit beside what is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory: {taken_bytes} of {capacity_bytes} bytes are taken, and {needed_bytes} are needed beside them")]
pub struct OutOfMemory {
    /// What other models hold.
    pub taken_bytes: u64,
    /// What there is.
    pub capacity_bytes: u64,
    /// What this one needs: its static memory, and its dynamic memory while a batch of it runs.
    pub needed_bytes: u64,
}

impl EmulatedMemory {
    /// So much memory; 0 if there is no limit to tell.
    #[must_use]
    pub fn new(capacity_bytes: u64) -> Self {
        let capacity_bytes = (capacity_bytes > 0).then_some(capacity_bytes);
        Self { capacity_bytes, taken_bytes: Mutex::default() }
    }

    /// Takes the static memory of a model, if that and its dynamic memory are free.
    ///
    /// # Errors
    /// [`OutOfMemory`] if they are not.
    pub fn take(self: &Arc<Self>, static_bytes: u64, dynamic_bytes: u64) -> Result<TakenMemory, OutOfMemory> {
        let mut taken = self.taken_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken_bytes, needed_bytes) = (*taken, static_bytes.saturating_add(dynamic_bytes));
        if let Some(capacity_bytes) = self.capacity_bytes
            && taken_bytes.saturating_add(needed_bytes) > capacity_bytes
        {
            return Err(OutOfMemory { taken_bytes, capacity_bytes, needed_bytes });
        }
        *taken = taken.saturating_add(static_bytes);
        Ok(TakenMemory { of: Arc::clone(self), bytes: *taken - taken_bytes })
    }
}

impl Drop for TakenMemory {
    fn drop(&mut self) {
        let mut taken = self.of.taken_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        *taken -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_until_something_goes() {
        let memory = Arc::new(EmulatedMemory::new(100));
        let first = memory.take(60, 10).unwrap();
        let refused = memory.take(30, 11).unwrap_err();
        assert_eq!(refused, OutOfMemory { taken_bytes: 60, capacity_bytes: 100, needed_bytes: 41 });
        let second = memory.take(30, 10).unwrap();
        drop(first);
        assert!(memory.take(60, 10).is_ok(), "dynamic memory is not kept");
        drop(second);
        assert!(memory.take(100, 0).is_ok() && memory.take(101, 0).is_err());
        let without_limit = Arc::new(EmulatedMemory::new(0));
        let all = without_limit.take(u64::MAX, u64::MAX).unwrap();
        drop((without_limit.take(1, 1).unwrap(), all));
        assert_eq!(*without_limit.taken_bytes.lock().unwrap(), 0);
    }
}
