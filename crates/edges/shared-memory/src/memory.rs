//! A memfd, mapped, as a slice of atomic words. Unsafe code is here and in `copy.rs` alone.
//!
//! Invariants, on which every block below rests:
//!
//! - M1. `base` is the start of a live mapping of `words × 8` bytes, made by this value and ended only when it is
//!   dropped; the kernel aligns mappings to pages, so words are aligned.
//! - M2. The file behind it is at least that long, and sealed against shrinking before it is mapped (by a reader: the
//!   seals are checked, and cannot be removed), so that no access of the mapping raises SIGBUS for lack of a file.
//! - M3. This process has no reference to the mapped bytes except through [`Memory::words`], which gives shared
//!   references to atomics. Other processes may store at any time; atomics are made for that, so whatever they store,
//!   no load is undefined.
//! - M4. A reader's mapping is read-only. The only stores in this crate are made by `Pool`, `RingSender` and
//!   `RingReceiver`, and only to memory that this process made, which has a writable one.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The required seals: the memory cannot be shortened, and no holder of the descriptor can write it.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE);

/// Why a descriptor is not taken for a pool.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The operating system refused.
    #[error("shared memory cannot be opened: {0}")]
    Io(#[from] io::Error),
    /// It is no memfd that is sealed as a pool is: reading it might wait, or end this process.
    #[error("the descriptor is no sealed memory")]
    NotSealed,
    /// It is too short, too long, or no whole number of words.
    #[error("shared memory of {bytes} bytes; expected whole words, {min} to {max} bytes")]
    Size {
        /// How long it is.
        bytes: u64,
        /// The shortest pool.
        min: u64,
        /// The longest that is taken.
        max: u64,
    },
    /// Its first words are not those of a pool.
    #[error("shared memory does not begin as a pool: {0}")]
    NotAPool(&'static str),
}

/// A mapping of shared memory. Its makers define its contents: pools and rings.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the value owns its mapping (M1), which belongs to the process and not to a thread.
unsafe impl Send for Memory {}
// SAFETY: all access is through shared references to atomics (M3).
unsafe impl Sync for Memory {}

impl Memory {
    /// New memory of `words` words, all zero, writable only here, and its descriptor for others. The name is what the
    /// system shows of it.
    pub(crate) fn create(name: &str, words: usize) -> io::Result<(Self, OwnedFd)> {
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, words as u64 * 8)?;
        let memory = Self::map(&fd, words, ProtFlags::READ | ProtFlags::WRITE)?;
        // After the writable mapping, which stays; no other can be made.
        fcntl_add_seals(&fd, SEALS | SealFlags::SEAL)?;
        Ok((memory, fd))
    }

    /// Memory that another process made, read-only. Its length is between `bytes_min` and `bytes_max`.
    pub(crate) fn open(fd: impl AsFd, bytes_min: u64, bytes_max: u64) -> Result<Self, OpenError> {
        // Only memfds have seals.
        let seals = fcntl_get_seals(&fd).map_err(|_| OpenError::NotSealed)?;
        if !seals.contains(SEALS) {
            return Err(OpenError::NotSealed);
        }
        let bytes = u64::try_from(fstat(&fd).map_err(io::Error::from)?.st_size).unwrap_or(0);
        if !(bytes_min..=bytes_max).contains(&bytes) || !bytes.is_multiple_of(8) {
            return Err(OpenError::Size { bytes, min: bytes_min, max: bytes_max });
        }
        let words = usize::try_from(bytes / 8).map_err(|_| OpenError::NotSealed)?;
        Ok(Self::map(&fd, words, ProtFlags::READ)?)
    }

    fn map(fd: impl AsFd, words: usize, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: the kernel chooses the place, so no memory in use is replaced.
        let base = unsafe { mmap(null_mut(), words * 8, protection, MapFlags::SHARED, fd, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, words })
    }

    /// The words. The process that made the memory may store to them at any time.
    pub(crate) const fn words(&self) -> &[AtomicU64] {
        // SAFETY: M1 and M2 for place, length and alignment; M3 for references.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }
}

impl AsRef<[AtomicU64]> for Memory {
    fn as_ref(&self) -> &[AtomicU64] {
        self.words()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: M1; `words` borrows from this value, so no reference is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.words * 8) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::sync::atomic::Ordering;

    use rustix::pipe::pipe;

    use super::*;

    const WORDS: usize = 1024;
    const BYTES: u64 = WORDS as u64 * 8;

    #[test]
    fn what_the_maker_stores_others_load() {
        let (memory, fd) = Memory::create("test", WORDS).unwrap();
        let other = Memory::open(&fd, 8, BYTES).unwrap();
        memory.words()[WORDS - 1].store(7, Ordering::Release);
        assert_eq!(other.words()[WORDS - 1].load(Ordering::Acquire), 7);
        drop((memory, fd));
        assert_eq!(other.words()[WORDS - 1].load(Ordering::Acquire), 7, "it lives as long as anybody holds it");
    }

    #[test]
    fn nobody_else_can_write_it_or_change_its_length() {
        let (_memory, fd) = Memory::create("test", WORDS).unwrap();
        let mut file = File::from(fd.try_clone().unwrap());
        assert!(file.write_all(&[1; 8]).is_err());
        assert!(file.set_len(8).is_err() && file.set_len(2 * BYTES).is_err());
        assert!(Memory::map(&fd, WORDS, ProtFlags::READ | ProtFlags::WRITE).is_err());
        assert!(fcntl_add_seals(&fd, SealFlags::WRITE).is_err(), "the seals are sealed");
    }

    #[test]
    fn what_is_no_sealed_memory_is_refused() {
        let bare = memfd_create("bare", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&bare, BYTES).unwrap();
        assert!(matches!(Memory::open(&bare, 8, BYTES), Err(OpenError::NotSealed)));
        // Reading it would wait for ever.
        let (silent, _writer) = pipe().unwrap();
        assert!(matches!(Memory::open(&silent, 8, BYTES), Err(OpenError::NotSealed)));
        assert!(matches!(Memory::open(File::open("/dev/zero").unwrap(), 8, BYTES), Err(OpenError::NotSealed)));
        let (_memory, fd) = Memory::create("test", WORDS).unwrap();
        for (min, max) in [(8, BYTES - 8), (BYTES + 8, BYTES + 16)] {
            assert!(matches!(Memory::open(&fd, min, max), Err(OpenError::Size { bytes: BYTES, .. })));
        }
        let odd = memfd_create("odd", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&odd, BYTES + 1).unwrap();
        fcntl_add_seals(&odd, SEALS).unwrap();
        assert!(matches!(Memory::open(&odd, 8, 2 * BYTES), Err(OpenError::Size { .. })));
    }
}
