//! Limits of scenarios that several parts check.

/// Models of one scenario, after `count` is expanded: 64 MB of queues and profiles at the usual sizes.
pub const SCENARIO_MODELS_MAX: usize = 10_000;
/// GPUs of one scenario: the limit of one rank worker.
pub const SCENARIO_GPUS_MAX: u32 = 1 << 16;
/// Seeds of one scenario.
pub const SEEDS_MAX: usize = 1_000;
/// The longest warm-up and duration in seconds: nanoseconds in an f64 stay accurate to well under a microsecond.
pub const DURATION_S_MAX: f64 = 1e6;
/// The highest total rate in requests per second: one per nanosecond.
pub const RATE_RPS_MAX: f64 = 1e9;
/// The highest price of a GPU per hour, and the highest budget: sums of it stay exact to a millionth.
pub const PRICE_MAX: f64 = 1e9;
/// The longest latency, SLO or delay in milliseconds: about 11 days.
pub(crate) const TIME_MS_MAX: f64 = 1e9;
/// The steepest Zipf law: the second model then gets 2⁻¹⁰⁰ of the first.
pub(crate) const ZIPF_MAX: f64 = 100.0;
