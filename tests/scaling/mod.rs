//! Backends come and go with the load.

mod fleet;
mod provision;
