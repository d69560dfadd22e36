//! The clocks that two processes of one machine share.

use anyhow::Result;
use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of the machine's monotonic clock: the same in both processes.
pub(super) fn now_ns() -> Result<u64> {
    read(ClockId::CLOCK_MONOTONIC)
}

/// Nanoseconds of processor time that this process has used, its kernel's included.
pub(super) fn cpu_ns() -> Result<u64> {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

fn read(clock: ClockId) -> Result<u64> {
    let time = clock_gettime(clock)?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
