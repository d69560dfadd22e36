//! The policy `auto`: how early batches start before frontrun ([README](README.md)).

pub(crate) mod demand;
pub(crate) mod early_start;
pub(crate) mod gap_meter;
pub(crate) mod rules;
