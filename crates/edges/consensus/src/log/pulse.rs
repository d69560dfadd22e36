//! How long the writer thread has been waiting for its disk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Shared between the writer, which sets it, and the stall watch, which reads it. Covers one engine step at a time.
#[derive(Debug)]
pub(crate) struct Pulse {
    epoch: Instant,
    /// Nanoseconds from the epoch to the begin of the step, plus one; 0 between steps.
    begun: AtomicU64,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { epoch: Instant::now(), begun: AtomicU64::new(0) }
    }

    /// Runs one step of the engine.
    pub(crate) fn during<T>(&self, step: impl FnOnce() -> T) -> T {
        let begun = u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX - 1);
        self.begun.store(begun + 1, Ordering::Release);
        let outcome = step();
        self.begun.store(0, Ordering::Release);
        outcome
    }

    /// When the current step began.
    pub(crate) fn busy_since(&self) -> Option<Instant> {
        let begun = self.begun.load(Ordering::Acquire).checked_sub(1)?;
        self.epoch.checked_add(Duration::from_nanos(begun))
    }
}
