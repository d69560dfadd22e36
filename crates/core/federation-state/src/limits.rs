//! Every bound of the state. Together they keep a snapshot under the 64 MiB that the group carries:
//!
//! | part | arithmetic | MiB |
//! | --- | --- | --- |
//! | models' specifications | [`MODEL_BYTES_TOTAL_MAX`] | 24 |
//! | the rest of the models | 4096 × (7 names of 128 B, 256 B of words, 0.2 KiB) | 6 |
//! | copies to let go of | [`LEFTOVERS_TOTAL_MAX`] × 160 B | 5 |
//! | operations | 1024 × (0.6 KiB of words, 128 B of actor, 1 KiB of refusal) | 2 |
//! | plans | 16 × 64 moves × (3 names of 128 B, 256 B of reason, 40 B) | 1 |
//! | clusters | 64 × (64 × 0.3 KiB of addresses, 64 × 160 B of kinds) | 2 |

// A federation has at most as many models as a cluster may hold, since one cluster may have to hold them all.
pub use symphony_replicated::{
    COMMAND_BYTES_MAX, MODEL_BYTES_TOTAL_MAX, MODELS_MAX, NAME_BYTES_MAX, OPERATIONS_KEPT, SNAPSHOT_BYTES_MAX,
};

/// Clusters of a federation.
pub const CLUSTERS_MAX: usize = 64;

/// Replicas of the group, which are never forgotten: as many as a group may have members.
pub const REPLICAS_MAX: usize = 64;

/// Control addresses of one cluster: as many as a cluster may have scheduler replicas.
pub const CONTROLS_MAX: usize = symphony_replicated::NODES_MAX;

/// GPU kinds of one cluster.
pub const KINDS_MAX: usize = 64;

/// Copies to be unloaded, over all models and clusters. A move that would exceed the limit waits.
pub const LEFTOVERS_TOTAL_MAX: usize = 32_768;

/// Moves under way at a time: their loading takes memory and bandwidth of serving clusters.
pub const MOVES_AT_ONCE_MAX: usize = 64;

/// Moves of one command; all may be under way together.
pub const MOVES_PER_COMMAND_MAX: usize = MOVES_AT_ONCE_MAX;

/// The largest requested rate, in thousandths of a request per second: 10⁹ per second.
pub const WANTED_MRPS_MAX: u64 = 1_000_000_000_000;

/// Bytes of a reason for display.
pub const REASON_BYTES_MAX: usize = 256;

/// Remembered plans, that is, moves that began together, and their progress.
pub const PLANS_KEPT: usize = 16;

/// Remembered events.
pub const EVENTS_MAX: usize = 64;
