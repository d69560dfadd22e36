//! The state of a sub-cluster that all its models must know: pressure, and how early batches may start.

pub(crate) mod account;
pub(crate) mod control;
pub(crate) mod pressure;
pub(crate) mod shedding;
pub(crate) mod signal;
