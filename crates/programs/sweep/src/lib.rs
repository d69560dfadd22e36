//! Many simulations on all cores: the one place where trials of scenarios run in parallel.
//!
//! The simulator is pure and single-threaded; a caller that wants the goodput of a hundred scenarios uses this crate.

mod goodputs;
mod map;
mod progress;
mod sweep;

pub use progress::Progress;
pub use sweep::{Run, Sweep};
