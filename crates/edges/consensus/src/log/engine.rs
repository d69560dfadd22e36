//! The port of storage engines.
//!
//! It is deliberately small: numbered values, a few named values, atomic batches, one barrier. The meaning of the
//! values, which may be lost, and what counts as a hole are decided above the port, once for all engines.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;

use bytes::Bytes;

/// The named values besides the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Slot {
    /// The owner of the disk.
    Stamp,
    /// The last vote.
    Vote,
    /// A hint: the last position known as committed.
    Committed,
    /// Everything up to here was purged.
    Purged,
    /// Index after the last whole entry; written in the same batch as the entries.
    Next,
    /// Number of the last batch over all time; part of every batch. The witness knows this number as of the last
    /// acknowledgement.
    Step,
}

/// The changes of one atomic step: first the removals, then the values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    /// Entries to remove; may name entries that do not exist.
    pub(crate) remove: Option<RangeInclusive<u64>>,
    /// Entries to put, framed.
    pub(crate) entries: Vec<(u64, Bytes)>,
    /// Named values to put, framed.
    pub(crate) slots: Vec<(Slot, Bytes)>,
}

/// An ordered store of framed values. One thread writes; any thread reads.
pub(crate) trait LogEngine: Send + Sync + fmt::Debug + 'static {
    /// Applies the batch: after a crash either all of it is stored or nothing. Reads see it when this returns; only
    /// [`barrier`](Self::barrier) makes it durable.
    fn write(&self, batch: Batch) -> io::Result<()>;

    /// Returns once everything written before survives power loss.
    fn barrier(&self) -> io::Result<()>;

    /// Entries of the range in order, as many as exist, until `bytes_max` is exceeded (at least one).
    fn read(&self, range: RangeInclusive<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>>;

    /// A named value.
    fn slot(&self, slot: Slot) -> io::Result<Option<Bytes>>;

    /// Lowest and highest index stored.
    fn bounds(&self) -> io::Result<Option<(u64, u64)>>;

    /// Bytes used on disk.
    fn disk_bytes(&self) -> io::Result<u64>;
}
