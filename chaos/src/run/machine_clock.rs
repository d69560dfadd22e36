//! The clock of the journals.

use std::time::Instant;

use anyhow::Result;
use nix::time::{ClockId, clock_gettime};

/// Turns this process's instants into the machine's CLOCK_MONOTONIC, which journals are written by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineClock {
    zero: Instant,
    zero_ns: u64,
}

impl MachineClock {
    pub(crate) fn read() -> Result<Self> {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
        let zero_ns = u64::try_from(now.tv_sec() * 1_000_000_000 + now.tv_nsec())?;
        Ok(Self { zero: Instant::now(), zero_ns })
    }

    /// Of moments since it was read.
    pub(crate) fn ns(self, at: Instant) -> u64 {
        self.zero_ns + at.saturating_duration_since(self.zero).as_nanos() as u64
    }
}
