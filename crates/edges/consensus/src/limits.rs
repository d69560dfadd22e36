//! Every bound of this crate, with the arithmetic between them; those of commands, states, names and addresses are the
//! replicated state's.

use std::time::Duration;

pub(crate) use symphony_replicated::{ADDRESS_BYTES_MAX, NAME_BYTES_MAX, NODES_MAX};
pub use symphony_replicated::{COMMAND_BYTES_MAX, SNAPSHOT_BYTES_MAX};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Largest snapshot image: the state, and room for header, membership and padding.
pub(crate) const SNAPSHOT_IMAGE_BYTES_MAX: usize = SNAPSHOT_BYTES_MAX + MIB;

/// Entries read for one replication request stop after this many bytes, but at least one entry is read.
pub(crate) const READ_BYTES_MAX: usize = MIB;

/// Largest message accepted: `READ_BYTES_MAX` before the last entry, that entry, and room for positions.
pub(crate) const MESSAGE_BYTES_MAX: usize = READ_BYTES_MAX + COMMAND_BYTES_MAX + 2 * MIB;

/// Snapshot bytes in one message: small enough to share a connection's flow-control window fairly.
pub(crate) const SNAPSHOT_CHUNK_BYTES: usize = 256 * KIB;

/// Entries in one replication request.
pub(crate) const APPEND_ENTRIES_MAX: u64 = 512;

/// Unanswered appends of one stream, at both ends. Within the deadline of the first, which is three heartbeats, there
/// are three; entries are sent one request at a time.
pub(crate) const APPENDS_UNANSWERED_MAX: usize = 8;

/// The format of Raft's messages and of their exchange; other formats are refused. Format 1 had no number, and used
/// one call per append; format 2 did not carry the acknowledged position.
pub(crate) const WIRE_FORMAT: u32 = 3;

/// Bytes of one stored value in sled, which writes a whole leaf of its tree at a time and moves one above a quarter of
/// its segment (512 KiB / 4) into a blob file that it never syncs. A leaf is split beyond 16 values and may have just
/// been given 4 of a neighbour: 20 x 4 KiB = 80 KiB, so larger frames are split over several keys.
pub(crate) const VALUE_BYTES_MAX: usize = 4 * KIB;

/// Recent entries kept in memory for replication, in bytes. Entries not yet written are kept beyond this limit.
pub(crate) const TAIL_BYTES_MAX: usize = 8 * MIB;

/// Operations waiting for the writer thread; more make the Raft core wait.
pub(crate) const WRITE_QUEUE_MAX: usize = 1024;

/// Bytes that one barrier may cover: bounds how long the first waiter of a group commit waits for the last.
pub(crate) const GROUP_COMMIT_BYTES_MAX: usize = 8 * MIB;

/// Entries removed by one atomic step of a purge or truncation.
pub(crate) const REMOVE_STEP_ENTRIES: u64 = 512;

/// Snapshots kept on disk: the newest, and its predecessor in case the newest turns out damaged.
pub(crate) const SNAPSHOTS_KEPT: usize = 2;

/// Disk space reserved and freed when the disk is full, so that a node can still open its log. Bytes.
pub(crate) const BALLAST_BYTES: usize = 8 * MIB;

/// An engine's page cache, bytes: the log is read from memory except by far-behind followers.
pub(crate) const ENGINE_CACHE_BYTES: usize = 16 * MIB;

/// How long a stopping replica waits for its Raft core, which may itself wait for a hung disk.
pub(crate) const CORE_ENDS_WITHIN: Duration = Duration::from_secs(1);

/// How long it then waits for its log to be written and closed. Whatever is lost then was never acknowledged. With the
/// second before it, this is a small part of the 10 s that service managers allow.
pub(crate) const LOG_CLOSES_WITHIN: Duration = Duration::from_secs(2);
