//! Placements: which sessions each GPU runs, from epoch to epoch.
//!
//! A [`Placement`] is a pure function of the [`Demand`] and of what is [`Placed`]; seeds are arguments.

mod demand;
mod divided;
mod fifo;
mod incremental;
mod loads;
mod packed;
mod placed;
mod random;
mod sessions_file;
mod sticky;

pub use demand::{Demand, GPUS_MAX, Refused};
pub use divided::Divided;
pub use fifo::Fifo;
pub use incremental::Incremental;
pub use loads::Loads;
pub use packed::Packed;
pub use placed::{Placed, PlacedGpu};
pub use random::Random;
pub use sessions_file::{NamedSession, read_sessions};
pub use sticky::Sticky;

/// Decides which sessions each GPU runs.
pub trait Placement {
    /// The placement for a demand, after the one in force, whose sessions have the same indices.
    fn place(&self, demand: &Demand<'_>, previous: &Placed) -> Placed;
}
