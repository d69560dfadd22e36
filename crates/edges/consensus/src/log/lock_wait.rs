//! Waits for a predecessor in this process that is still closing its files.

use std::thread;
use std::time::{Duration, Instant};

const LOCK_WAIT: Duration = Duration::from_secs(5);
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// Opens; retries for some seconds while another holder has the lock.
pub(super) fn retry_while_locked<T, E>(
    mut open: impl FnMut() -> Result<T, E>,
    is_locked: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match open() {
            Err(error) if is_locked(&error) && Instant::now() < deadline => thread::sleep(LOCK_RETRY),
            other => return other,
        }
    }
}
