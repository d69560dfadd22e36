//! What bounds a pipeline and the run of one of its requests.

/// Stages of a pipeline: splitting the budget costs a convolution per stage, and paths through the stages are sets of
/// 32 bits.
pub const STAGES_MAX: usize = 32;

/// Edges of a pipeline: a series-parallel graph of n vertices without parallel edges has fewer than 2·n.
pub const EDGES_MAX: usize = 2 * STAGES_MAX;

/// The most stage requests that one result may lead to along one edge, whatever the pipeline says.
pub const FAN_OUT_MAX: u32 = 1024;

/// The least measured γ that counts: a stage that nothing led to for a while still gets a budget by what it costs.
pub const GAMMA_MIN: f64 = 1e-3;

/// The bound of an edge's fan-out where the pipeline gives none and expects at most a quarter of it.
pub const FAN_OUT_USUAL: u32 = 32;

/// Stage requests of one request in all: fan-outs multiply along a path, and this bounds the memory of a run to some
/// 100 KiB, and as much again for each join that they may lead to.
pub const ASKS_MAX: usize = 4096;

/// Steps of the time grid in an SLO: a convolution costs at most half the square of it, fifty million sums.
pub const STEPS_MAX: u64 = 10_000;
