//! Bugs of storage that are planted on purpose.

use std::str::FromStr;

/// A bug that the crash suite must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// Appends and votes are acknowledged before they are synced.
    AckBeforeSync,
    /// A vote alone is acknowledged without a sync.
    LostVoteSync,
    /// Two appends are acknowledged in the wrong order.
    ReorderedAcks,
    /// Entries are purged before the mark that says so is durable.
    PurgeBeforeMark,
    /// sled's `flush` is taken for a barrier.
    SledFlushOnly,
    /// A snapshot's file is synced, its name is not.
    SnapshotNameUnsynced,
    /// The end of the log is marked before the entries are written.
    EndMarkApart,
    /// A failed sync counts as successful.
    SwallowedSyncError,
}

impl Plant {
    /// Every bug that can be planted.
    pub const ALL: [Self; 8] = [
        Self::AckBeforeSync,
        Self::LostVoteSync,
        Self::ReorderedAcks,
        Self::PurgeBeforeMark,
        Self::SledFlushOnly,
        Self::SnapshotNameUnsynced,
        Self::EndMarkApart,
        Self::SwallowedSyncError,
    ];

    /// Its name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AckBeforeSync => "ack-before-sync",
            Self::LostVoteSync => "lost-vote-sync",
            Self::ReorderedAcks => "reordered-acks",
            Self::PurgeBeforeMark => "purge-before-mark",
            Self::SledFlushOnly => "sled-flush-only",
            Self::SnapshotNameUnsynced => "snapshot-name-unsynced",
            Self::EndMarkApart => "end-mark-apart",
            Self::SwallowedSyncError => "swallowed-sync-error",
        }
    }
}

impl FromStr for Plant {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|plant| plant.name() == name).ok_or_else(|| format!("expected one of {}", names()))
    }
}
