//! When the log is compacted.

/// How often the log is compacted into a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotEvery {
    /// A snapshot is taken after this many entries.
    pub entries: u64,
    /// Entries kept in the log before the snapshot: a follower that lags by less needs no snapshot. With at least
    /// `entries` of them, the previous snapshot can still be used if the last one is damaged.
    pub entries_kept: u64,
}

impl Default for SnapshotEvery {
    fn default() -> Self {
        Self { entries: 5_000, entries_kept: 5_000 }
    }
}
