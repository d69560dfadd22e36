//! Many simulations on all cores: the one place where trials of scenarios run in parallel.
//!
//! The simulator is pure and single-threaded; whoever wants the goodput of a hundred scenarios asks here.

mod goodputs;
mod map;
mod sweep;

pub use sweep::{Progress, Run, Sweep};
