//! The layout of a pool, and lock-free writes and reads of it: pure functions over atomic words.
//!
//! ```text
//! words  0        magic
//!        1        entries, a power of two
//!        8…       entries of 4 words each: stamp, number, place, length and checksum
//!        data…    the bytes, in whole words
//! ```
//!
//! The bytes of number n are found through entry n mod entries. An entry's stamp counts its changes: it is even and
//! not 0 while the entry is valid, and odd from the start of a removal until the next content is complete. So a reader
//! that finds the stamp even and unchanged before and after its copy has copied consistent data (a seqlock). The
//! checksum covers number and stamp as well as bytes.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use bytes::Bytes;
use zerocopy::IntoBytes as _;

use crate::buffers::Buffers;
use crate::{checksum, copy};

/// The smallest pool, in bytes.
pub const POOL_BYTES_MIN: u64 = 64 << 10;
/// The largest pool, in bytes: 64 GiB.
pub const POOL_BYTES_MAX: u64 = 64 << 30;
/// The most entries of a pool.
pub const ENTRIES_MAX: usize = 1 << 22;

/// What a pool begins with: its name and version.
const MAGIC: u64 = u64::from_le_bytes(*b"SYMPOOL1");
/// Words before the first entry: a cache line.
const HEAD_WORDS: usize = 8;
/// Words of an entry: two entries share a cache line.
pub(crate) const ENTRY_WORDS: usize = 4;
/// Words of a unit, in which memory is given out: 1 KiB.
pub(crate) const UNIT_WORDS: usize = 128;
/// Bytes are copied and checksummed in pieces that stay in the nearest cache.
const PIECE_WORDS: usize = 3 * (8 << 10) / 8;

/// Why a number cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is not there, or was taken away while it was read.
    #[error("it is not in the pool")]
    Absent,
    /// The entry exists, but its content is invalid.
    #[error("it is damaged")]
    Damaged,
}

/// The layout of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    entries: usize,
    /// The first word of the data.
    data: usize,
    words: usize,
}

impl Layout {
    /// A pool of this many words with this many entries; none if no data would fit, or it is too large.
    pub(crate) fn new(words: usize, entries: usize) -> Option<Self> {
        let fits = entries.is_power_of_two() && entries <= ENTRIES_MAX && words as u64 <= POOL_BYTES_MAX / 8;
        let data = (HEAD_WORDS + entries.checked_mul(ENTRY_WORDS)?).next_multiple_of(UNIT_WORDS);
        (fits && data + UNIT_WORDS <= words).then_some(Self { entries, data, words })
    }

    /// Reads and validates the layout that a pool's maker states.
    pub(crate) fn read(words: &[AtomicU64]) -> Result<Self, &'static str> {
        let [magic, entries, ..] = words else { return Err("it has not even two words") };
        if magic.load(Ordering::Acquire) != MAGIC {
            return Err("other magic or version");
        }
        let entries = usize::try_from(entries.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        Self::new(words.len(), entries).ok_or("its number of entries is impossible")
    }

    /// Writes the layout for readers, before any content.
    pub(crate) fn write(&self, words: &[AtomicU64]) {
        words[1].store(self.entries as u64, Ordering::Relaxed);
        words[0].store(MAGIC, Ordering::Release);
    }

    pub(crate) const fn entries(&self) -> usize {
        self.entries
    }

    /// Units of data.
    pub(crate) const fn units(&self) -> usize {
        (self.words - self.data) / UNIT_WORDS
    }

    /// Index of the entry of a payload, by the payload's number.
    pub(crate) const fn entry_of(&self, number: u64) -> usize {
        number as usize & (self.entries - 1)
    }

    /// The first word of an entry.
    pub(crate) const fn entry_word(&self, entry: usize) -> usize {
        HEAD_WORDS + entry * ENTRY_WORDS
    }

    /// Whether an entry may refer to this many bytes at that word.
    pub(crate) fn has(&self, place: u64, length: usize) -> bool {
        let first = usize::try_from(place).ok().filter(|&first| first >= self.data);
        let end = first.and_then(|first| first.checked_add(length.div_ceil(8)));
        end.is_some_and(|end| end <= self.words)
    }

    fn entry<'a>(&self, words: &'a [AtomicU64], entry: usize) -> &'a [AtomicU64; ENTRY_WORDS] {
        words[self.entry_word(entry)..].first_chunk().expect("entries lie before the data")
    }

    /// Writes `bytes` into the units from `first` on, and publishes them as `number`. Returns the entry's stamp;
    /// `before` is the previous one. The caller owns the units, and is the only one to write there.
    pub(crate) fn show(&self, words: &[AtomicU64], number: u64, before: u64, first: usize, bytes: &[u8]) -> u64 {
        let [stamp, shown, place, sum] = self.entry(words, self.entry_of(number));
        // From here to the next even stamp it is odd, even for a reused entry.
        let during = before | 1;
        let after = during + 1;
        stamp.store(during, Ordering::Relaxed);
        fence(Ordering::Release);
        let at = self.data + first * UNIT_WORDS;
        let checksum = store(&words[at..], bytes, seed(number, after, bytes.len()));
        shown.store(number, Ordering::Relaxed);
        place.store(at as u64, Ordering::Relaxed);
        sum.store(bytes.len() as u64 | u64::from(checksum) << 32, Ordering::Relaxed);
        stamp.store(after, Ordering::Release);
        after
    }

    /// Removes the content of the entry; its units may be reused at once. Returns the stamp.
    pub(crate) fn hide(&self, words: &[AtomicU64], entry: usize, before: u64) -> u64 {
        let after = before | 1;
        self.entry(words, entry)[0].store(after, Ordering::Relaxed);
        // Before any reuse of its units: a reader that sees the new content sees the stamp as well.
        fence(Ordering::Release);
        after
    }

    /// A copy of the content of `number`, of at most `bytes_max` bytes. Whatever the words are, and whichever process
    /// changes them meanwhile, this returns complete bytes that were stored under that number, or none.
    pub(crate) fn read_number(
        &self,
        words: &[AtomicU64],
        number: u64,
        bytes_max: usize,
        buffers: &Buffers,
    ) -> Result<Bytes, Unreadable> {
        let [stamp, shown, place, sum] = self.entry(words, self.entry_of(number));
        let before = stamp.load(Ordering::Acquire);
        if before == 0 || before & 1 == 1 || shown.load(Ordering::Relaxed) != number {
            return Err(Unreadable::Absent);
        }
        let (place, sum) = (place.load(Ordering::Relaxed), sum.load(Ordering::Relaxed));
        let (length, checksum) = ((sum as u32) as usize, (sum >> 32) as u32);
        let possible = length <= bytes_max && self.has(place, length);
        let found = possible.then(|| &words[place as usize..][..length.div_ceil(8)]);
        let copied = found.map(|found| load(found, length, seed(number, before, length), buffers));
        // The copied bytes, and the entry that located them, were read before this check.
        fence(Ordering::Acquire);
        if stamp.load(Ordering::Relaxed) != before {
            return Err(Unreadable::Absent);
        }
        match copied {
            Some((bytes, is)) if is == checksum => Ok(bytes),
            _ => Err(Unreadable::Damaged),
        }
    }
}

/// Checksum of number, stamp and length, to be continued over the bytes.
pub(crate) fn seed(number: u64, stamp: u64, length: usize) -> u32 {
    crc32c::crc32c([number, stamp, length as u64].as_bytes())
}

fn store(words: &[AtomicU64], bytes: &[u8], seed: u32) -> u32 {
    let mut checksum = seed;
    let pieces = bytes.chunks(PIECE_WORDS * 8).zip(words.chunks(PIECE_WORDS));
    for (piece, words) in pieces {
        checksum = checksum::append(checksum, piece);
        let (whole, rest) = piece.as_chunks::<8>();
        for (word, bytes) in words.iter().zip(whole) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            words[whole.len()].store(u64::from_ne_bytes(last), Ordering::Relaxed);
        }
    }
    checksum
}

fn load(words: &[AtomicU64], length: usize, seed: u32, buffers: &Buffers) -> (Bytes, u32) {
    let mut copied = buffers.take(words.len());
    let mut checksum = seed;
    for piece in words.chunks(PIECE_WORDS) {
        let from = copied.len();
        copy::append(piece, &mut copied);
        let bytes = copied[from..].as_bytes();
        checksum = checksum::append(checksum, &bytes[..bytes.len().min(length - from * 8)]);
    }
    (Bytes::from_owner(buffers.lend(copied, length)), checksum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORDS: usize = 8192;
    const ENTRIES: usize = 4;

    fn pool() -> (Layout, Vec<AtomicU64>) {
        let words: Vec<_> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let layout = Layout::new(WORDS, ENTRIES).unwrap();
        layout.write(&words);
        (layout, words)
    }

    fn words(values: &[u64]) -> Vec<AtomicU64> {
        values.iter().map(|&value| AtomicU64::new(value)).collect()
    }

    fn read(layout: &Layout, words: &[AtomicU64], number: u64, bytes_max: usize) -> Result<Bytes, Unreadable> {
        layout.read_number(words, number, bytes_max, &Buffers::default())
    }

    #[test]
    fn what_was_shown_is_read_until_it_is_hidden() {
        let (layout, words) = pool();
        assert_eq!(Layout::read(&words), Ok(layout));
        for number in [0, 1, 9] {
            assert_eq!(read(&layout, &words, number, 100), Err(Unreadable::Absent));
        }
        let stamp = layout.show(&words, 5, 0, 3, b"some bytes");
        assert_eq!(read(&layout, &words, 5, 100).unwrap(), "some bytes");
        assert_eq!(read(&layout, &words, 1, 100), Err(Unreadable::Absent), "another number of the same entry");
        assert_eq!(read(&layout, &words, 5, 9), Err(Unreadable::Damaged), "longer than anything can be");
        let stamp = layout.hide(&words, layout.entry_of(5), stamp);
        assert_eq!(read(&layout, &words, 5, 100), Err(Unreadable::Absent));
        let later = layout.show(&words, 9, stamp, 0, b"");
        assert!(later > stamp);
        assert_eq!(read(&layout, &words, 9, 100).unwrap(), "");
    }

    #[test]
    fn each_single_bit_that_is_wrong_is_noticed() {
        let (layout, words) = pool();
        let bytes: Vec<_> = (0..1000_u32).map(|n| n as u8).collect();
        layout.show(&words, 2, 0, 1, &bytes);
        let entry = HEAD_WORDS + 2 * ENTRY_WORDS;
        let data = layout.data + UNIT_WORDS;
        for at in (entry..entry + ENTRY_WORDS).chain(data..data + bytes.len() / 8) {
            for bit in 0..64 {
                words[at].fetch_xor(1 << bit, Ordering::Relaxed);
                let read = read(&layout, &words, 2, 1 << 20);
                assert!(read.is_err(), "bit {bit} of word {at}: {} bytes", read.map_or(0, |read| read.len()));
                words[at].fetch_xor(1 << bit, Ordering::Relaxed);
            }
        }
        assert_eq!(read(&layout, &words, 2, 1 << 20).unwrap(), bytes);
    }

    #[test]
    fn no_impossible_pool_is_believed() {
        let (_, good) = pool();
        for (at, value) in [(0, 0), (0, MAGIC + 1), (1, 0), (1, 3), (1, WORDS as u64 / 4), (1, 1 << 63), (1, u64::MAX)]
        {
            let before = good[at].swap(value, Ordering::Relaxed);
            assert!(Layout::read(&good).is_err(), "word {at} = {value}");
            good[at].store(before, Ordering::Relaxed);
        }
        assert!(Layout::read(&words(&[MAGIC])).is_err() && Layout::read(&[]).is_err());
    }

    proptest! {
        #[test]
        fn bytes_of_any_length_come_back(bytes in prop::collection::vec(any::<u8>(), 0..60_000), number: u64) {
            let (layout, words) = pool();
            layout.show(&words, number, 0, 0, &bytes);
            prop_assert_eq!(read(&layout, &words, number, 60_000).unwrap(), bytes);
        }

        /// A peer that writes garbage: nothing panics, nothing is read beyond the pool, and no wrong content is
        /// accepted.
        #[test]
        fn garbage_is_never_believed(
            garbage in prop::collection::vec(any::<u64>(), 0..64),
            near in prop::collection::vec((0_usize..WORDS, 0_u64..4096), 0..64),
            number in 0_u64..16,
        ) {
            let (layout, words) = pool();
            let stamp = layout.show(&words, 3, 0, 0, b"right");
            layout.hide(&words, 3, stamp);
            for (word, garbage) in words[HEAD_WORDS..].iter().zip(&garbage) {
                word.store(*garbage, Ordering::Relaxed);
            }
            for (at, value) in near {
                words[at].store(value, Ordering::Relaxed);
            }
            prop_assert!(read(&layout, &words, number, 1 << 30).is_err());
            let _ = Layout::read(&words);
            let _ = Layout::read(&self::words(&garbage));
        }
    }
}
