//! The writing side of a pool.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::blocks::{Block, Blocks};
use crate::layout::{Layout, POOL_BYTES_MIN, UNIT_WORDS};
use crate::memory::Memory;

/// Why there is no pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The operating system refused.
    #[error("no shared memory: {0}")]
    Io(#[from] io::Error),
    /// No pool can have such a size.
    #[error("a pool of {bytes} bytes with {entries} entries is impossible; expected {POOL_BYTES_MIN} to {max} bytes, a power \
             of two of entries, and room beside them", max = crate::POOL_BYTES_MAX)]
    Size {
        /// The size in bytes that was asked for.
        bytes: u64,
        /// The number of entries that was asked for.
        entries: usize,
    },
}

/// Bytes that other processes may read by number. No call waits: content without room is not stored.
#[derive(Debug)]
pub struct Pool {
    memory: Memory,
    layout: Layout,
    fd: OwnedFd,
    state: Mutex<State>,
    used: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug)]
struct State {
    blocks: Blocks,
    entries: Vec<Entry>,
}

/// This side's knowledge of an entry; the shared memory is never read back.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    stamp: u64,
    used: bool,
}

impl Pool {
    /// A pool of `bytes` bytes with `entries` entries. The system allocates memory at its first use.
    ///
    /// # Errors
    /// If the system has no memory that can be shared and sealed, or the size is impossible.
    pub fn create(bytes: u64, entries: usize) -> Result<Arc<Self>, PoolError> {
        let impossible = PoolError::Size { bytes, entries };
        let words = usize::try_from(bytes / 8).unwrap_or(usize::MAX);
        let layout = Layout::new(words, entries).filter(|_| bytes >= POOL_BYTES_MIN).ok_or(impossible)?;
        let (memory, fd) = Memory::create("symphony-pool", words)?;
        layout.write(memory.words());
        let state = State { blocks: Blocks::new(layout.units()), entries: vec![Entry::default(); entries] };
        let (used, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Arc::new(Self { memory, layout, fd, state: Mutex::new(state), used, refused }))
    }

    /// Stores bytes as `number` until the returned value is dropped. None if there is no room: the pool is full, its
    /// entry is taken, or the bytes exceed 4 GiB.
    #[must_use = "dropped, the bytes are gone again"]
    pub fn put(self: &Arc<Self>, number: u64, bytes: &[u8]) -> Option<Placed> {
        let placed = self.place(number, bytes);
        if placed.is_none() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        placed
    }

    fn place(self: &Arc<Self>, number: u64, bytes: &[u8]) -> Option<Placed> {
        u32::try_from(bytes.len()).ok()?;
        let entry = self.layout.entry_of(number);
        let (block, before) = {
            let mut state = self.lock();
            let known = state.entries[entry];
            if known.used {
                return None;
            }
            let block = state.blocks.take(bytes.len().div_ceil(UNIT_WORDS * 8))?;
            state.entries[entry].used = true;
            (block, known.stamp)
        };
        // Entry and block belong to this call alone, so no lock is held while the bytes are copied.
        let stamp = self.layout.show(self.memory.words(), number, before, block.first, bytes);
        self.used.fetch_add(bytes_of(block), Ordering::Relaxed);
        Some(Placed { pool: Arc::clone(self), entry, stamp, block })
    }

    /// The descriptor for readers.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The memory, for registration with a network. It does not move while the pool exists.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    /// The most numbers stored at a time.
    #[must_use]
    pub const fn entries(&self) -> usize {
        self.layout.entries()
    }

    /// Bytes in use now, including the rounding of blocks.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// How often there was no room.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const fn bytes_of(block: Block) -> u64 {
    (block.units() * UNIT_WORDS * 8) as u64
}

/// Bytes in a pool; dropping this removes them.
#[derive(Debug)]
pub struct Placed {
    pool: Arc<Pool>,
    entry: usize,
    stamp: u64,
    block: Block,
}

impl Drop for Placed {
    fn drop(&mut self) {
        let Self { pool, entry, stamp, block } = self;
        let stamp = pool.layout.hide(pool.memory.words(), *entry, *stamp);
        pool.used.fetch_sub(bytes_of(*block), Ordering::Relaxed);
        let mut state = pool.lock();
        state.blocks.give_back(*block);
        state.entries[*entry] = Entry { stamp, used: false };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::{PoolView, Unreadable};

    const BYTES: u64 = 256 << 10;

    fn pool() -> (Arc<Pool>, PoolView) {
        let pool = Pool::create(BYTES, 64).unwrap();
        let view = PoolView::open(pool.descriptor(), BYTES).unwrap();
        (pool, view)
    }

    #[test]
    fn bytes_are_there_until_they_are_let_go() {
        let (pool, view) = pool();
        let (one, other) = (pool.put(1, b"one").unwrap(), pool.put(2, &[7; 5000]).unwrap());
        assert_eq!(view.read(1, 100).unwrap(), "one");
        assert_eq!(view.read(2, 5000).unwrap(), vec![7; 5000]);
        assert_eq!(pool.used_bytes(), 1024 + 8192);
        drop(one);
        assert_eq!((view.read(1, 100), pool.used_bytes()), (Err(Unreadable::Absent), 8192));
        assert!(view.read(2, 5000).is_ok());
        drop(other);
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn what_finds_no_place_is_not_put_there() {
        let (pool, view) = pool();
        let first = pool.put(1, b"first").unwrap();
        assert!(pool.put(65, b"same entry").is_none());
        assert_eq!((view.read(65, 100), view.read(1, 100).unwrap()), (Err(Unreadable::Absent), "first".into()));
        assert!(pool.put(2, &vec![0; BYTES as usize]).is_none());
        let many: Vec<_> = (2..64).map_while(|number| pool.put(number, &[1; 16 << 10])).collect();
        assert!(!many.is_empty() && many.len() < 62, "{} fit", many.len());
        assert_eq!(pool.refused(), 3);
        drop((first, many));
        assert!(pool.put(2, &vec![0; 128 << 10]).is_some(), "everything was given back");
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for (bytes, entries) in [(0, 64), (BYTES, 0), (BYTES, 3), (BYTES, 8192), (u64::MAX, 64), (BYTES, 1 << 23)] {
            assert!(matches!(Pool::create(bytes, entries), Err(PoolError::Size { .. })), "{bytes} {entries}");
        }
    }

    /// Many writers and readers: a reader gets bytes that carry the number that they were put there for, or none.
    #[test]
    fn a_place_that_is_used_again_is_never_taken_for_what_was_there() {
        const NUMBERS: u64 = 64;
        const ROUNDS: u64 = 3000;
        let (pool, view) = pool();
        // The number and a round, over and over: pieces of two rounds would show.
        let bytes = |number: u64, round: u64| (number << 32 | round).to_le_bytes().repeat(64 + number as usize * 8);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|writer| {
                    let pool = &pool;
                    scope.spawn(move || {
                        let mut last = VecDeque::new();
                        for round in 0..ROUNDS {
                            let number = (round * 7 + writer) % NUMBERS;
                            last.extend(pool.put(number, &bytes(number, round)));
                            if last.len() > 4 {
                                last.pop_front();
                            }
                        }
                        last
                    })
                })
                .collect();
            let look = || {
                let found = (0..NUMBERS).filter(|&number| match view.read(number, 1 << 20) {
                    Ok(found) => {
                        let round = u64::from_le_bytes(*found.first_chunk().unwrap()) & 0xffff_ffff;
                        assert_eq!(found, bytes(number, round), "{number}");
                        true
                    }
                    Err(unreadable) => {
                        assert_eq!(unreadable, Unreadable::Absent, "{number}");
                        false
                    }
                });
                found.count()
            };
            while writers.iter().any(|writer| !writer.is_finished()) {
                look();
            }
            let left: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
            assert_eq!(look(), left.len());
        });
    }
}
