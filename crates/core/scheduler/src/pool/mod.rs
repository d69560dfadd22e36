//! What a sub-cluster finds out about itself and tells all its models: how hard it is pressed, and how early batches
//! may start.

pub(crate) mod account;
pub(crate) mod control;
pub(crate) mod pressure;
pub(crate) mod shedding;
pub(crate) mod signal;
