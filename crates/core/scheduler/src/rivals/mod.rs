//! Rivals: policies of other systems, rebuilt from their publications and measured on the same hosts.
//!
//! Each decides for a whole cluster and implements [`ClusterPolicy`](crate::ClusterPolicy). Rivals that decide per
//! model need no object of their own: they are [`Policy`](crate::Policy) values.

mod clockwork;
mod cluster;
mod deadline_queue;
mod gpu_book;
mod kairos;
mod nexus;
pub(crate) mod round_robin;
mod shepherd;
mod unplaced_requests;

pub use clockwork::{Clockwork, ClockworkSettings};
pub use kairos::{Clkwrk, Drs, Kairos, KairosSettings, Ribbon};
pub use nexus::{Nexus, NexusSettings};
pub use shepherd::{Shepherd, ShepherdSettings};
