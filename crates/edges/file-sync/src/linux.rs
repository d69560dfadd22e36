//! The replacement.

#[cfg(feature = "crash-suite")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, c_uint, off64_t};

static CALLS: AtomicU64 = AtomicU64::new(0);

#[cfg(feature = "crash-suite")]
static PROMISES_NOTHING: AtomicBool = AtomicBool::new(false);

pub(crate) fn calls() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

#[cfg(feature = "crash-suite")]
pub(crate) fn promise_nothing() {
    PROMISES_NOTHING.store(true, Ordering::Relaxed);
}

/// Makes the contents and the size of a file durable, whichever part of it is asked for.
#[expect(unsafe_code, reason = "the name is the C library's, and so is the function that it calls")]
// SAFETY: it has the C library's signature, so its callers' declarations are right.
#[unsafe(no_mangle)]
extern "C" fn sync_file_range(file: c_int, _offset: off64_t, _length: off64_t, _flags: c_uint) -> c_int {
    CALLS.fetch_add(1, Ordering::Relaxed);
    #[cfg(feature = "crash-suite")]
    if PROMISES_NOTHING.load(Ordering::Relaxed) {
        return 0;
    }
    // SAFETY: the argument is a descriptor's number; an invalid one fails with EBADF. `errno` is set, as the caller
    // expects.
    unsafe { libc::fdatasync(file) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    /// Through the same declaration as sled.
    #[expect(unsafe_code, reason = "calls what it tests as a C function")]
    fn called(file: c_int) -> c_int {
        // SAFETY: numbers only.
        unsafe { libc::sync_file_range(file, 0, 1, 0) }
    }

    use super::*;

    #[test]
    fn whoever_asks_the_c_library_is_answered_here() {
        let file = tempfile::tempfile().unwrap();
        let before = calls();
        assert_eq!(called(file.as_raw_fd()), 0);
        assert_eq!(calls(), before + 1);
        assert_eq!(called(-1), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    }
}
