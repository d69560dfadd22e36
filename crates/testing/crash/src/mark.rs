//! What an actor says: before it asks for something, and when that is acknowledged. One JSON line each.

use serde::{Deserialize, Serialize};

/// What a disk holds, as far as it can be checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Found {
    /// Term, node, committed.
    pub(crate) vote: Option<(u64, u64, bool)>,
    /// Everything up to this index was purged.
    pub(crate) purged: Option<u64>,
    /// What the newest snapshot covers, and the hash of it.
    pub(crate) snapshot: Option<(u64, u64)>,
    /// Term, first and last index of entries in a row.
    pub(crate) runs: Vec<(u64, u64, u64)>,
    /// How long it took to open, milliseconds.
    pub(crate) open_ms: u64,
}

impl Found {
    /// Every entry: index and term.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.runs.iter().flat_map(|&(term, first, last)| (first..=last).map(move |index| (index, term)))
    }

    /// Index of the last entry or of the purged mark.
    pub(crate) fn last(&self) -> Option<u64> {
        self.runs.last().map(|&(_, _, last)| last).or(self.purged)
    }

    /// Adds an entry that follows those before.
    pub(crate) fn push(&mut self, index: u64, term: u64) {
        match self.runs.last_mut() {
            Some((of, _, last)) if *of == term && *last + 1 == index => *last = index,
            _ => self.runs.push((term, index, index)),
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mark {
    /// An actor begins: the disk is about to be opened.
    Begin,
    /// It was opened, and holds this; the actor relies on all of it.
    Found(Found),
    /// The disk could not be opened.
    Refused(String),
    /// Entries of `term` are to be appended, `first..=last`.
    Append { op: u64, term: u64, first: u64, last: u64 },
    /// A vote is to be saved.
    Vote { op: u64, vote: (u64, u64, bool) },
    /// Entries from `first` on are to go.
    Truncate { op: u64, first: u64 },
    /// Entries up to `through` are to go; a snapshot covers them.
    Purge { op: u64, through: u64 },
    /// A snapshot up to `index` is to be taken; its state has this hash.
    Snapshot { op: u64, index: u64, hash: u64 },
    /// It is durable.
    Acked { op: u64 },
    /// It was refused or failed, for this reason; it may be on disk all the same.
    Failed { op: u64, reason: String },
    /// The actor is through.
    End,
}

impl Mark {
    /// Says it, in one write.
    pub(crate) fn say(&self) {
        use std::io::Write as _;
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        // The listener may be gone; the actor is killed then anyway.
        let _ = std::io::stdout().lock().write_all(&line);
    }

    /// Reads a line; what is no mark, such as a log line, is nothing.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}
