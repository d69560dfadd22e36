//! A stream of bytes between two processes: in each direction through memory that its writer made, with counters and a
//! ring over atomic words.
//!
//! ```text
//! words  0        magic
//!        16, 17   bytes written to this ring so far; not 0 once nothing more comes
//!        32       bytes taken from the other one's ring so far
//!        48, 49   not 0 while the maker sleeps: for bytes, for room
//!        64…      the ring, a power of two of bytes
//! ```
//!
//! Each side writes its own memory and only reads the other's. So a peer can only lie: its counters are validated at
//! each use, and its bytes are copied out before they are interpreted. A side with nothing to do announces that it
//! sleeps, checks once more, and waits for a wake-up; a side that has made progress checks whether the other sleeps,
//! and wakes it once. A side that resumes by itself, because something arrived at its last check, is not woken again
//! before it has handled that wake-up: so wake-ups do not pile up. A side that does not sleep is not woken.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::memory::{Memory, OpenError};

/// The smallest ring, in bytes.
pub const RING_BYTES_MIN: usize = 4 << 10;
/// The largest ring, in bytes: 16 MiB.
pub const RING_BYTES_MAX: usize = 16 << 20;

/// What a ring's memory begins with: its name and version.
const MAGIC: u64 = u64::from_le_bytes(*b"SYMRING1");
/// Counters that different sides touch lie two cache lines apart: processors fetch pairs of lines.
const WRITTEN: usize = 16;
const ENDED: usize = 17;
const TAKEN: usize = 32;
const AWAITS_BYTES: usize = 48;
const AWAITS_ROOM: usize = 49;
/// Words before the ring.
pub(crate) const RING_HEAD_WORDS: usize = 64;

/// The peer's counters are impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// It has written more than fits, or less than was taken.
    #[error("the peer says that it wrote {written} bytes, of which {taken} are taken; its ring holds {bytes}")]
    Written {
        /// What it says.
        written: u64,
        /// Bytes that this end has taken.
        taken: u64,
        /// How many bytes its ring holds.
        bytes: usize,
    },
    /// It has taken more than there was.
    #[error("the peer says that it took {taken} bytes of the {written} that were written; this ring holds {bytes}")]
    Taken {
        /// What it says.
        taken: u64,
        /// Bytes that this end has written.
        written: u64,
        /// How many bytes the ring holds.
        bytes: usize,
    },
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a sleeping peer must be woken"]
pub struct Moved {
    /// Bytes that were written or taken.
    pub bytes: usize,
    /// Whether the other side sleeps for this, and must be woken.
    pub wake: bool,
}

/// What can be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Available {
    /// This many bytes; 0 if none have arrived yet.
    Bytes(usize),
    /// Nothing, and no more will come.
    End,
}

/// One process's memory for both directions: its own bytes, and its counters for the other's.
#[derive(Debug)]
pub struct RingMemory {
    memory: Memory,
    fd: OwnedFd,
}

impl RingMemory {
    /// Memory with a ring of this many bytes, a power of two from [`RING_BYTES_MIN`] to [`RING_BYTES_MAX`].
    ///
    /// # Errors
    /// If the system has no memory that can be shared and sealed, or the size is impossible.
    pub fn create(bytes: usize) -> io::Result<Self> {
        if ring_of(RING_HEAD_WORDS + bytes / 8) != Some(bytes) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a ring of {bytes} bytes is impossible")));
        }
        let (memory, fd) = Memory::create("symphony-ring", RING_HEAD_WORDS + bytes / 8)?;
        memory.words()[0].store(MAGIC, Ordering::Release);
        Ok(Self { memory, fd })
    }

    /// The descriptor for the other process.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Both directions between this memory and another process's. No descriptor is kept.
    ///
    /// # Errors
    /// If the other one is no memory that is sealed, or has no ring.
    pub fn join(self, theirs: impl AsFd) -> Result<(RingSender, RingReceiver), OpenError> {
        let bytes = |ring: usize| ((RING_HEAD_WORDS * 8) + ring) as u64;
        let theirs = Memory::open(theirs, bytes(RING_BYTES_MIN), bytes(RING_BYTES_MAX))?;
        ends(Arc::new(self.memory), Arc::new(theirs)).map_err(OpenError::NotAPool)
    }
}

/// The bytes of the ring in this many words; none if there is no such ring.
fn ring_of(words: usize) -> Option<usize> {
    let bytes = words.checked_sub(RING_HEAD_WORDS)?.checked_mul(8)?;
    (bytes.is_power_of_two() && (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&bytes)).then_some(bytes)
}

/// Both directions between memory that only this process writes, and memory that another one may write at any time.
///
/// # Errors
/// If one of them has no ring.
pub fn ends<M: AsRef<[AtomicU64]>>(
    mine: Arc<M>,
    theirs: Arc<M>,
) -> Result<(RingSender<M>, RingReceiver<M>), &'static str> {
    let words = (*theirs).as_ref();
    let read = ring_of(words.len()).ok_or("its ring has an impossible size")?;
    if words[0].load(Ordering::Acquire) != MAGIC {
        return Err("other magic or version");
    }
    let write = ring_of((*mine).as_ref().len()).ok_or("this ring has an impossible size")?;
    let sleep = || Sleep { number: 1, asleep: false, woken_for: 0 };
    let sender = RingSender {
        mine: Arc::clone(&mine),
        theirs: Arc::clone(&theirs),
        bytes: write,
        written: 0,
        taken: 0,
        sleep: sleep(),
    };
    Ok((sender, RingReceiver { mine, theirs, bytes: read, taken: 0, sleep: sleep() }))
}

/// Words of a test's or a fuzzer's, as a ring's maker leaves them before anything is written.
#[must_use]
pub fn blank_ring(bytes: usize) -> Vec<AtomicU64> {
    let words: Vec<_> = (0..RING_HEAD_WORDS + bytes / 8).map(|_| AtomicU64::new(0)).collect();
    words[0].store(MAGIC, Ordering::Relaxed);
    words
}

/// The sleep announcements of one direction, of both sides.
#[derive(Debug)]
struct Sleep {
    /// This side's number for its sleeps until it handles a wake-up: it is woken once for each number, so unhandled
    /// wake-ups do not pile up.
    number: u64,
    asleep: bool,
    /// The other side's last sleep for which it was woken.
    woken_for: u64,
}

impl Sleep {
    /// Announces that this side sleeps. The other side's later actions will see it; its earlier ones are seen by a
    /// check after this.
    fn announce(&mut self, word: &AtomicU64) {
        if !self.asleep {
            self.asleep = true;
            word.store(self.number, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// This side was woken, possibly spuriously. Before the next sleep it must announce again.
    fn woken(&mut self) {
        self.number += 1;
        self.asleep = false;
    }

    fn end(&mut self, word: &AtomicU64) {
        if std::mem::take(&mut self.asleep) || word.load(Ordering::Relaxed) != 0 {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the other side sleeps and was not woken for it. To be called after storing what it waits for.
    fn must_wake(&mut self, word: &AtomicU64) -> bool {
        fence(Ordering::SeqCst);
        let sleeps = word.load(Ordering::Relaxed);
        sleeps != 0 && std::mem::replace(&mut self.woken_for, sleeps) != sleeps
    }
}

/// The writing end.
#[derive(Debug)]
pub struct RingSender<M = Memory> {
    mine: Arc<M>,
    theirs: Arc<M>,
    /// Size of this ring.
    bytes: usize,
    written: u64,
    /// The other side's last known count of bytes taken.
    taken: u64,
    sleep: Sleep,
}

impl<M: AsRef<[AtomicU64]>> RingSender<M> {
    /// Writes as many bytes as fit.
    ///
    /// # Errors
    /// If the other side's counters are impossible.
    pub fn send(&mut self, bytes: &[u8]) -> Result<Moved, RingError> {
        let mut room = self.bytes - (self.written - self.taken) as usize;
        if room < bytes.len() {
            room = self.room()?;
        }
        let count = bytes.len().min(room);
        if count == 0 {
            return Ok(Moved::default());
        }
        let mine = (*self.mine).as_ref();
        self.sleep.end(&mine[AWAITS_ROOM]);
        let at = self.written as usize & (self.bytes - 1);
        let (first, rest) = bytes[..count].split_at(count.min(self.bytes - at));
        let ring = &mine[RING_HEAD_WORDS..];
        store(ring, at, first);
        store(ring, 0, rest);
        self.written += count as u64;
        mine[WRITTEN].store(self.written, Ordering::Release);
        Ok(Moved { bytes: count, wake: self.sleep.must_wake(&(*self.theirs).as_ref()[AWAITS_BYTES]) })
    }

    /// Announces that this side sleeps until there is room. False if there is room already.
    ///
    /// # Errors
    /// If the other side's counters are impossible.
    pub fn sleeps(&mut self) -> Result<bool, RingError> {
        self.sleep.announce(&(*self.mine).as_ref()[AWAITS_ROOM]);
        Ok(self.room()? == 0)
    }

    /// To be called whenever wake-ups were read from the socket, for whichever direction.
    pub fn woken(&mut self) {
        self.sleep.woken();
    }

    /// Marks the end of the stream. Returns whether to wake the other side.
    pub fn end(&mut self) -> bool {
        let mine = (*self.mine).as_ref();
        mine[ENDED].store(1, Ordering::Release);
        self.sleep.must_wake(&(*self.theirs).as_ref()[AWAITS_BYTES])
    }

    fn room(&mut self) -> Result<usize, RingError> {
        let (taken, written, bytes) =
            ((*self.theirs).as_ref()[TAKEN].load(Ordering::Acquire), self.written, self.bytes);
        match written.checked_sub(taken) {
            Some(held) if held <= bytes as u64 => {
                self.taken = taken;
                Ok(bytes - held as usize)
            }
            _ => Err(RingError::Taken { taken, written, bytes }),
        }
    }
}

/// The reading end.
#[derive(Debug)]
pub struct RingReceiver<M = Memory> {
    mine: Arc<M>,
    theirs: Arc<M>,
    /// Size of the other side's ring.
    bytes: usize,
    taken: u64,
    sleep: Sleep,
}

impl<M: AsRef<[AtomicU64]>> RingReceiver<M> {
    /// How much can be received.
    ///
    /// # Errors
    /// If the other side's counters are impossible.
    pub fn available(&self) -> Result<Available, RingError> {
        let theirs = (*self.theirs).as_ref();
        // Read before the count of bytes written: nothing is written after the end.
        let ended = theirs[ENDED].load(Ordering::Acquire) != 0;
        let (written, taken, bytes) = (theirs[WRITTEN].load(Ordering::Acquire), self.taken, self.bytes);
        match written.checked_sub(taken) {
            Some(0) if ended => Ok(Available::End),
            Some(held) if held <= bytes as u64 => Ok(Available::Bytes(held as usize)),
            _ => Err(RingError::Written { written, taken, bytes }),
        }
    }

    /// Copies bytes into `into`, as many as fit.
    ///
    /// # Errors
    /// If the other side's counters are impossible.
    pub fn receive(&mut self, into: &mut [u8]) -> Result<Moved, RingError> {
        let Available::Bytes(held) = self.available()? else { return Ok(Moved::default()) };
        let count = held.min(into.len());
        if count == 0 {
            return Ok(Moved::default());
        }
        let mine = (*self.mine).as_ref();
        self.sleep.end(&mine[AWAITS_BYTES]);
        let at = self.taken as usize & (self.bytes - 1);
        let (first, rest) = into[..count].split_at_mut(count.min(self.bytes - at));
        let theirs = (*self.theirs).as_ref();
        let ring = &theirs[RING_HEAD_WORDS..];
        load(ring, at, first);
        load(ring, 0, rest);
        self.taken += count as u64;
        mine[TAKEN].store(self.taken, Ordering::Release);
        // A waiting writer is woken once half of the ring is free, and not for every few bytes.
        let wake = held - count <= self.bytes / 2 && self.sleep.must_wake(&theirs[AWAITS_ROOM]);
        Ok(Moved { bytes: count, wake })
    }

    /// To be called whenever wake-ups were read from the socket, for whichever direction.
    pub fn woken(&mut self) {
        self.sleep.woken();
    }

    /// Announces that this side sleeps until something arrives. False if there is something to read already, the end
    /// included.
    ///
    /// # Errors
    /// If the other side's counters are impossible.
    pub fn sleeps(&mut self) -> Result<bool, RingError> {
        self.sleep.announce(&(*self.mine).as_ref()[AWAITS_BYTES]);
        Ok(self.available()? == Available::Bytes(0))
    }
}

/// Puts bytes at a place of the ring; they end before the ring does. Beside them in their first and last word stay.
fn store(words: &[AtomicU64], at: usize, bytes: &[u8]) {
    let (head, bytes) = bytes.split_at(bytes.len().min(at.wrapping_neg() % 8));
    patch(words, at, head);
    let first = (at + head.len()) / 8;
    let (whole, tail) = bytes.as_chunks::<8>();
    for (word, bytes) in words[first.min(words.len())..].iter().zip(whole) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    patch(words, (first + whole.len()) * 8, tail);
}

/// A part of one word, which has no other writer.
fn patch(words: &[AtomicU64], at: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let word = &words[at / 8];
    let mut whole = word.load(Ordering::Relaxed).to_ne_bytes();
    whole[at % 8..][..bytes.len()].copy_from_slice(bytes);
    word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
}

/// Copies bytes out of a place of the ring; they end before the ring does.
fn load(words: &[AtomicU64], at: usize, into: &mut [u8]) {
    let (head, into) = into.split_at_mut(into.len().min(at.wrapping_neg() % 8));
    part(words, at, head);
    let first = (at + head.len()) / 8;
    let (whole, tail) = into.as_chunks_mut::<8>();
    let count = whole.len();
    for (word, bytes) in words[first.min(words.len())..].iter().zip(whole) {
        *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    part(words, (first + count) * 8, tail);
}

fn part(words: &[AtomicU64], at: usize, into: &mut [u8]) {
    if !into.is_empty() {
        into.copy_from_slice(&words[at / 8].load(Ordering::Relaxed).to_ne_bytes()[at % 8..][..into.len()]);
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
