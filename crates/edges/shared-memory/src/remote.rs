//! A pool in another host's memory, read over the network: which bytes to fetch, and whether the result is valid. Pure
//! functions over untrusted bytes.

use crate::checksum;
use crate::layout::{ENTRY_WORDS, Layout, Unreadable, seed};

/// Bytes that are fetched for an entry.
pub const ENTRY_BYTES: usize = ENTRY_WORDS * 8;

/// The layout of a remote pool, as its owner states it. Offsets are in bytes from the pool's start. Words are
/// little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteLayout(Layout);

/// An entry's claim about the bytes of its number. Not to be trusted before [`EntryClaim::holds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryClaim {
    number: u64,
    stamp: u64,
    at: u64,
    length: usize,
    checksum: u32,
}

impl RemoteLayout {
    /// A pool of `bytes` bytes with `entries` entries.
    ///
    /// # Errors
    /// If there is no such pool.
    pub fn new(bytes: u64, entries: u64) -> Result<Self, &'static str> {
        let words = bytes.is_multiple_of(8).then(|| usize::try_from(bytes / 8).ok()).flatten();
        let layout = words.zip(usize::try_from(entries).ok()).and_then(|(words, entries)| Layout::new(words, entries));
        layout.map(Self).ok_or("its size or its number of entries is impossible")
    }

    /// Offset of the entry of a number; its length is [`ENTRY_BYTES`].
    #[must_use]
    pub fn entry_at(&self, number: u64) -> u64 {
        (self.0.entry_word(self.0.entry_of(number)) * 8) as u64
    }

    /// Parses an entry for a number whose bytes are at most `bytes_max`.
    ///
    /// # Errors
    /// If the number is not stored, or the entry is invalid; the latter also when the entry was changing while it was
    /// fetched.
    pub fn find(&self, number: u64, entry: &[u8; ENTRY_BYTES], bytes_max: usize) -> Result<EntryClaim, Unreadable> {
        let [stamp, shown, place, sum] = words(entry);
        if stamp == 0 || stamp & 1 == 1 || shown != number {
            return Err(Unreadable::Absent);
        }
        let (length, checksum) = ((sum as u32) as usize, (sum >> 32) as u32);
        if length > bytes_max || !self.0.has(place, length) {
            return Err(Unreadable::Damaged);
        }
        Ok(EntryClaim { number, stamp, at: place * 8, length, checksum })
    }
}

impl EntryClaim {
    /// Offset of the bytes.
    #[must_use]
    pub const fn at(&self) -> u64 {
        self.at
    }

    /// Length of the bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Whether these are the complete bytes that were stored under that number.
    #[must_use]
    pub fn holds(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.length
            && checksum::append(seed(self.number, self.stamp, self.length), bytes) == self.checksum
    }
}

/// Why the bytes fetched by the entry `before` are wrong: the entry has changed, or the bytes are damaged.
#[must_use]
pub fn why_wrong(before: &[u8; ENTRY_BYTES], after: &[u8; ENTRY_BYTES]) -> Unreadable {
    if before == after { Unreadable::Damaged } else { Unreadable::Absent }
}

fn words(entry: &[u8; ENTRY_BYTES]) -> [u64; ENTRY_WORDS] {
    let (words, _) = entry.as_chunks::<8>();
    std::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Pool;

    const BYTES: u64 = 64 << 10;
    const ENTRIES: u64 = 16;

    /// The whole pool, as a network would fetch it.
    fn fetched(pool: &Pool) -> Vec<u8> {
        pool.words().iter().flat_map(|word| word.load(std::sync::atomic::Ordering::Acquire).to_le_bytes()).collect()
    }

    fn entry(memory: &[u8], at: u64) -> &[u8; ENTRY_BYTES] {
        memory[at as usize..].first_chunk().unwrap()
    }

    fn pool() -> (std::sync::Arc<Pool>, RemoteLayout) {
        let pool = Pool::create(BYTES, ENTRIES as usize).unwrap();
        (pool, RemoteLayout::new(BYTES, ENTRIES).unwrap())
    }

    fn read<'a>(layout: &RemoteLayout, memory: &'a [u8], number: u64) -> Result<&'a [u8], Unreadable> {
        let found = layout.find(number, entry(memory, layout.entry_at(number)), 1 << 20)?;
        let bytes = &memory[found.at() as usize..][..found.length()];
        if found.holds(bytes) { Ok(bytes) } else { Err(Unreadable::Damaged) }
    }

    #[test]
    fn what_the_owner_puts_there_is_found_from_afar() {
        let (pool, layout) = pool();
        let placed = [pool.put(3, b"three").unwrap(), pool.put(4, &[7; 5000]).unwrap(), pool.put(5, b"").unwrap()];
        let memory = fetched(&pool);
        assert_eq!(read(&layout, &memory, 3), Ok(&b"three"[..]));
        assert_eq!(read(&layout, &memory, 4), Ok(&[7; 5000][..]));
        assert_eq!(read(&layout, &memory, 5), Ok(&b""[..]));
        assert_eq!(read(&layout, &memory, 3 + ENTRIES), Err(Unreadable::Absent), "another number of that entry");
        drop(placed);
        assert_eq!(read(&layout, &fetched(&pool), 3), Err(Unreadable::Absent));
    }

    /// The number's entry was reused between the two fetches: the bytes belong to the new content.
    #[test]
    fn a_stale_generation_is_noticed_although_everything_else_fits() {
        let (pool, layout) = pool();
        let placed = pool.put(3, b"first").unwrap();
        let before = fetched(&pool);
        drop(placed);
        let _placed = pool.put(3, b"other").unwrap();
        let after = fetched(&pool);
        let at = layout.entry_at(3);
        let found = layout.find(3, entry(&before, at), 100).unwrap();
        assert!(!found.holds(&after[found.at() as usize..][..found.length()]));
        assert_eq!(why_wrong(entry(&before, at), entry(&after, at)), Unreadable::Absent);
        // The same bytes under a new stamp are another generation too.
        let same = layout.find(3, entry(&after, at), 100).unwrap();
        assert!(same.holds(b"other") && !same.holds(b"first") && !same.holds(b"othe"));
        assert_eq!(why_wrong(entry(&after, at), entry(&after, at)), Unreadable::Damaged);
    }

    #[test]
    fn each_single_bit_that_is_wrong_is_noticed() {
        let (pool, layout) = pool();
        let _placed = pool.put(3, &[9; 300]).unwrap();
        let mut memory = fetched(&pool);
        let at = layout.entry_at(3) as usize;
        let found = layout.find(3, entry(&memory, at as u64), 1 << 20).unwrap();
        let data = found.at() as usize;
        for byte in (at..at + ENTRY_BYTES).chain(data..data + 300) {
            for bit in 0..8 {
                memory[byte] ^= 1 << bit;
                assert!(read(&layout, &memory, 3).is_err(), "bit {bit} of byte {byte}");
                memory[byte] ^= 1 << bit;
            }
        }
        assert!(read(&layout, &memory, 3).is_ok());
    }

    #[test]
    fn no_impossible_pool_is_believed() {
        for (bytes, entries) in
            [(0, 1), (BYTES, 0), (BYTES, 3), (BYTES + 1, 4), (BYTES, BYTES), (u64::MAX - 7, 1), (BYTES, u64::MAX)]
        {
            assert!(RemoteLayout::new(bytes, entries).is_err(), "{bytes} {entries}");
        }
    }

    proptest! {
        /// A lying owner: nothing panics, and nothing beyond the pool or longer than allowed is ever fetched.
        #[test]
        fn what_is_fetched_lies_in_the_pool(
            bytes in 0_u64..1 << 20, entries in 0_u64..64, number: u64, entry: [u8; ENTRY_BYTES], bytes_max in 0_usize..1 << 20,
            near in prop::option::of((0_u64..1 << 18, 0_u64..1 << 20)),
        ) {
            let Ok(layout) = RemoteLayout::new(bytes, entries) else { return Ok(()) };
            prop_assert!(layout.entry_at(number) + ENTRY_BYTES as u64 <= bytes);
            let mut entry = entry;
            if let Some((place, length)) = near {
                entry[..8].copy_from_slice(&2_u64.to_le_bytes());
                entry[8..16].copy_from_slice(&number.to_le_bytes());
                entry[16..24].copy_from_slice(&place.to_le_bytes());
                entry[24..].copy_from_slice(&length.to_le_bytes());
            }
            if let Ok(found) = layout.find(number, &entry, bytes_max) {
                prop_assert!(found.length() <= bytes_max && found.at() + found.length() as u64 <= bytes);
                prop_assert!(!found.holds(&vec![0; found.length() + 1]));
            }
        }
    }
}
