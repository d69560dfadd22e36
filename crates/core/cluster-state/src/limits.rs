//! Every bound of the state. Together they keep a snapshot under the 64 MiB that the control group carries:
//!
//! | part | arithmetic | MiB |
//! | --- | --- | --- |
//! | models | [`MODEL_BYTES_TOTAL_MAX`] + 4096 × (256 B that they do not count + 0.2 KiB) | 22 |
//! | holders | 65 536 × (256 B of error + 32 B) | 18 |
//! | GPUs | 65 536 × (128 B of kind + 32 B) | 10 |
//! | backends, frontends | 4096 × 0.8 KiB + 4096 × 0.8 KiB | 6.4 |
//! | operations | 1024 × (0.5 KiB of words + 128 B of actor + 0.5 KiB of refusal) | 1.2 |
//! | plans | 8 × (1024 moves × (256 B of reason + 80 B) + 64 models × (256 B of reason + 16 B) + 1 KiB) | 2.8 |
//! | traffic splits | 256 × (128 B of name + 4 × 24 B + 0.1 KiB) | 0.1 |
//! | policies of sub-clusters | 1024 × (512 B of text + 63 B of name + 32 B) + 64 × 32 × 72 B | 0.7 |
//! | trunks | 4096 × (16 cut points × 16 B + 64 B) | 1.3 |
//! | pipelines | [`PIPELINE_BYTES_TOTAL_MAX`] + 256 × (256 B that they do not count + 32 × 8 B + 64 × 8 B + 0.2 KiB) | 1.3 |
//! | sub-clusters, nodes, events | 1024 × (64 × 8 B + 0.2 KiB) + 64 × 0.9 KiB + 4096 × 8 B + 64 × 1 KiB | 1 |
//!
//! `full_state_tests.rs` makes such a state: 61 MiB.

pub use symphony_replicated::{
    ADDRESS_BYTES_MAX, COMMAND_BYTES_MAX, MODEL_BYTES_TOTAL_MAX, MODELS_MAX, NAME_BYTES_MAX, NODES_MAX,
    OPERATIONS_KEPT, PATH_BYTES_MAX, PROFILE_KINDS_MAX, SNAPSHOT_BYTES_MAX, TENSORS_MAX,
};

/// Bytes of a backup: a state, and room for where it is from.
pub const BACKUP_BYTES_MAX: usize = SNAPSHOT_BYTES_MAX + (1 << 10);

/// Removed replicas whose ids are remembered: more than a cluster loses in its lifetime.
pub const NODES_REMOVED_MAX: usize = 4096;

/// Sub-clusters.
pub const SUBCLUSTERS_MAX: usize = 1024;

/// Backends, up and dead; a dead one is forgotten when a new one needs its slot.
pub const BACKENDS_MAX: usize = 4096;

/// GPUs of one backend; the reply to its registration names them all.
pub const GPUS_PER_BACKEND_MAX: usize = 64;

/// GPUs of the cluster.
pub const GPUS_MAX: usize = 65_536;

/// Frontends, including those that have left; one of these is forgotten when a new one needs its slot.
pub const FRONTENDS_MAX: usize = 4096;

/// Remembered load reports of backends on models.
pub const HOLDERS_MAX: usize = 65_536;

/// Bytes of an error reported by a backend; longer ones are truncated on receipt.
pub const ERROR_BYTES_MAX: usize = 256;

/// Models and pipelines whose traffic is split at a time.
pub const TRAFFIC_SPLITS_MAX: usize = 256;

/// Versions in one split: more do not fit the words of an operation.
pub const TRAFFIC_VERSIONS_MAX: usize = 4;

/// The largest weight in a split.
pub const TRAFFIC_WEIGHT_MAX: u32 = 1_000_000;

/// Policies for sub-clusters that the program of a replica adds.
pub const POLICIES_KNOWN_MAX: usize = 32;

/// Versions of pipelines, together: as many as models whose traffic is split.
pub const PIPELINES_MAX: usize = 256;

/// Bytes of all pipelines' declarations together: 256 of two dozen tensors each.
pub const PIPELINE_BYTES_TOTAL_MAX: usize = 1 << 20;

/// Events remembered.
pub const EVENTS_MAX: usize = 64;

/// Bytes of an operation's description: two names or an address, and a few words.
pub const OPERATION_WORDS_BYTES_MAX: usize = 512;

/// Remembered plans, the latest ones.
pub const PLANS_KEPT: usize = 8;

/// Moves of one plan; a longer proposal is refused.
pub const PLAN_MOVES_MAX: usize = 1024;

/// Models of a plan that are listed because they fit nowhere; more are left out.
pub const PLAN_LEFT_ALONE_MAX: usize = 64;

/// Moves of models and backends under way at a time: their loading takes memory and bandwidth from models that are
/// being served.
pub const MOVES_AT_ONCE_MAX: usize = 64;

/// Models that a backend loads at a time for moves: loading takes bandwidth from the models that it serves.
pub const LOADS_PER_BACKEND_MAX: usize = 4;

/// Smaller loads do not reveal a backend's loading speed: fixed costs dominate.
pub const LOAD_MEASURED_BYTES_MIN: u64 = 8 << 20;

/// Bytes of a plan's cause and of its summary.
pub const PLAN_WORDS_BYTES_MAX: usize = 512;
