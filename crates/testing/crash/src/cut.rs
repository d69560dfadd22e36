//! What of the unsynced a power cut leaves.

use std::fmt;

use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::file_change::{FileChange, write_at};

/// Which of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// None.
    Nothing,
    /// All: the process was only killed.
    Everything,
    /// The first changes of each file and directory.
    Prefix,
    /// Each write or not.
    Subset,
    /// Of each write some blocks of this many bytes: sectors or pages.
    Torn(usize),
}

/// One power cut; all chance is in its seed.
#[derive(Debug)]
pub(crate) struct Cut {
    kept: Kept,
    random: Xoshiro256PlusPlus,
}

impl Cut {
    pub(crate) fn new(kept: Kept, seed: u64) -> Self {
        Self { kept, random: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    /// A kind by chance; losing everything is as frequent as all others, since that is what a missing sync shows best.
    pub(crate) fn any(seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let kept = match random.random_range(0..10) {
            0..4 => Kept::Nothing,
            4 => Kept::Everything,
            5 => Kept::Prefix,
            6 | 7 => Kept::Subset,
            8 => Kept::Torn(512),
            _ => Kept::Torn(4096),
        };
        Self { kept, random }
    }

    /// How many of a directory's changes are kept: names become durable in order.
    pub(crate) fn names_kept(&mut self, pending: usize) -> usize {
        match self.kept {
            Kept::Nothing => 0,
            Kept::Everything => pending,
            Kept::Prefix | Kept::Subset | Kept::Torn(_) => self.random.random_range(0..=pending),
        }
    }

    /// Applies those of a file's changes that are kept.
    pub(crate) fn keep(&mut self, pending: &[FileChange<'_>], bytes: &mut Vec<u8>) {
        let first = match self.kept {
            Kept::Nothing => 0,
            Kept::Prefix => self.random.random_range(0..=pending.len()),
            Kept::Everything | Kept::Subset | Kept::Torn(_) => pending.len(),
        };
        for change in &pending[..first] {
            match (self.kept, *change) {
                (Kept::Torn(block), FileChange::Write { offset, data }) => self.tear(block, offset, data, bytes),
                (Kept::Subset | Kept::Torn(_), _) if self.random.random_bool(0.5) => {}
                _ => change.apply(bytes),
            }
        }
    }

    fn tear(&mut self, block: usize, offset: u64, data: &[u8], bytes: &mut Vec<u8>) {
        let mut at = 0;
        while at < data.len() {
            // Blocks are the device's, not the write's.
            let length = (block - (offset as usize + at) % block).min(data.len() - at);
            if self.random.random_bool(0.5) {
                write_at(bytes, offset + at as u64, &data[at..at + length]);
            }
            at += length;
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kept {
            Kept::Nothing => f.write_str("nothing unsynced kept"),
            Kept::Everything => f.write_str("everything kept"),
            Kept::Prefix => f.write_str("first writes kept"),
            Kept::Subset => f.write_str("some writes kept"),
            Kept::Torn(block) => write!(f, "some blocks of {block} bytes kept"),
        }
    }
}
