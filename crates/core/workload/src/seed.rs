//! Derives many independent streams of random numbers from one seed.

use rand::{RngCore, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

/// Stands in for a model's position in the stream that deals a trace's nameless rows to models.
pub(crate) const TRACE_STREAM: u64 = u64::MAX;
// Streams of models and GPUs, by what they draw; positions are added. Arrivals have the first 2^32, so that nothing
// else that is drawn changes them.
pub(crate) const DEADLINE_STREAM: u64 = 1 << 32;
pub(crate) const ITEMS_STREAM: u64 = 2 << 32;
pub(crate) const NOISE_STREAM: u64 = 3 << 32;
/// Streams of the sources of a trace of counts.
pub(crate) const SPREAD_STREAM: u64 = 4 << 32;
pub(crate) const VARIANT_STREAM: u64 = 5 << 32;
/// Streams of results of stages; the pipeline's position has the upper 16 bits of what is added.
pub(crate) const FAN_OUT_STREAM: u64 = 6 << 32;
/// Arrivals of pipelines.
pub(crate) const PIPELINE_STREAM: u64 = 7 << 32;

/// A generator for (seed, stream): both pass through splitmix64, so that neighbouring numbers are unrelated streams.
pub(crate) fn stream_rng(seed: u64, stream: u64) -> Xoshiro256PlusPlus {
    let base = SplitMix64::seed_from_u64(seed).next_u64();
    Xoshiro256PlusPlus::seed_from_u64(SplitMix64::seed_from_u64(base.wrapping_add(stream)).next_u64())
}
