//! Backends come and go with the load.

mod provision;
