//! The largest accepted values; each bounds a queue, a table or a wait of the configured process.

/// Sizes of a Raft group that survive half of it but one; more than 7 only makes commits slower.
pub const REPLICAS: [usize; 4] = [1, 3, 5, 7];
/// Decision threads that all leads share: more than any machine has cores for.
pub const DECISION_THREADS_MAX: u32 = 256;
/// Model threads: the same.
pub const MODEL_THREADS_MAX: u32 = 256;
/// One tape, in MB: what `symphony replay` reads.
pub const TAPE_MB_MAX: u64 = 1024;
/// Any one delay, in microseconds: a second is beyond every SLO that batches are deferred for.
pub const DELAY_US_MAX: u64 = 1_000_000;
/// GPUs of one kind that a sub-cluster may be advised to have: what one rank worker may hold.
pub const SCALED_GPUS_MAX: u32 = symphony_controllers::SCALED_GPUS_MAX;
/// Kinds of GPUs with a price: those that there may be in a sub-cluster, with room for some that are not.
pub const PRICES_MAX: usize = 64;
/// The highest price and the highest budget: those of scenarios.
pub const PRICE_MAX: f64 = symphony_workload::PRICE_MAX;
/// Largest reserve of idle GPUs, in per cent: more is another half of a cluster.
pub const RESERVE_PERCENT_MAX: u32 = 50;
/// How long GPUs on order count, in seconds: an hour.
pub const SCALING_S_MAX: u64 = 3600;
/// Largest share of GPUs that are set aside, in per cent: that of the simulator.
pub const QUARANTINED_PERCENT_MAX: u32 = symphony_workload::QUARANTINED_PERCENT_MAX;
/// The first pause of a GPU that is set aside, in seconds: later ones are no longer.
pub const QUARANTINE_S_MAX: u64 = symphony_controllers::QUARANTINE_MAX.get() / 1_000_000_000;
/// Faster than this, most windows would be shorter than the second between load reports.
pub const LOOP_SPEEDUP_MAX: u32 = 20;
/// Bytes of one request: 63 MiB, what a frame can carry to a backend (`PAYLOAD_BYTES_MAX` of the protocol).
pub const REQUEST_BYTES_MAX: u64 = 63 << 20;
/// Requests in flight at one frontend.
pub const REQUESTS_IN_FLIGHT_MAX: u32 = 1 << 20;
/// As many connections as an address of this host has ports.
pub const CONNECTIONS_MAX: u64 = 1 << 16;
/// Grace after a deadline, in milliseconds.
pub const ANSWER_GRACE_MS_MAX: u64 = 60_000;
/// GPUs of one backend, over all kinds.
pub const GPUS_MAX: u32 = 64;
/// Memory of one GPU in MB: 4 TiB.
pub const GPU_MEMORY_MB_MAX: u64 = 4 << 20;
/// Largest noise of emulated GPUs: that of the simulator, which uses the same law.
pub const NOISE_MAX: f64 = symphony_workload::LOGNORMAL_SIGMA_MAX;
/// Threads of one batch.
pub const INTRA_OP_THREADS_MAX: u32 = 256;
/// One journal of a backend, in MB: what a checker reads.
pub const JOURNAL_MB_MAX: u64 = 4096;
/// Shared memory of one process, or of one pair for results, in MB: 64 GiB.
pub const POOL_MB_MAX: u64 = 64 << 10;
/// How long a reader of frames may look before it sleeps, in microseconds: longer than the pauses of a busy link by
/// far.
pub const FRAMES_SPIN_US_MAX: u64 = 10_000;
/// Pictures that are decoded at once: more than any machine has cores for.
pub const IMAGE_THREADS_MAX: u64 = 1024;
/// Pictures that wait to be decoded: as many as requests may be in flight in all.
pub const IMAGES_WAITING_MAX: u64 = 1 << 20;
/// Pixels of one picture: 16 384 along each side.
pub const IMAGE_PIXELS_MAX: u64 = 1 << 28;
/// Tensors that pictures have become, in MB: 1 TiB.
pub const IMAGES_DECODED_MB_MAX: u64 = 1 << 20;
/// Clusters of a federation.
pub const CLUSTERS_MAX: usize = symphony_federation_state::CLUSTERS_MAX;
/// Control addresses of one cluster.
pub const CONTROLS_MAX: usize = symphony_federation_state::CONTROLS_MAX;
/// Shortest and longest time until a silent cluster counts as lost, in milliseconds.
pub const UNREACHABLE_MS: [u64; 2] = [500, 3_600_000];
/// Addresses that are dialled elsewhere.
pub const ROUTES_MAX: usize = 1024;
/// Origins that browsers may call from.
pub const CORS_ORIGINS_MAX: usize = 64;
/// Names of one process, for browsers.
pub const PAGE_HOSTS_MAX: usize = 64;
/// Bytes of a log filter.
pub const LOG_LEVEL_BYTES_MAX: usize = 1024;
