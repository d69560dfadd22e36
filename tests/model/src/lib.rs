//! A model of the take-over protocol (docs/concepts/take-over.md), searched exhaustively within bounds: schedulers that
//! take each other for dead, backends and frontends that restart, messages that are late, lost and doubled.
//!
//! The decisions that safety hangs on are the production objects: [`GpuFence`](symphony_backend::GpuFence) and
//! [`ClusterState`](symphony_cluster_state::ClusterState). The README says what is modelled around them.

mod backend;
mod broken;
mod fence;
mod frontend;
mod leader;
mod log;
mod model;
mod mutation;
mod scope;
mod search;
mod world;

pub use broken::Broken;
pub use log::{Entry, Log};
pub use model::{Action, Protocol};
pub use mutation::Mutation;
pub use scope::Scope;
pub use search::{SearchResult, search};
pub use world::World;

/// Schedulers, numbered from 0.
pub const NODES: usize = 2;
/// Backends, numbered from 0, with one GPU each.
pub const BACKENDS: usize = 2;

/// Boots of a process, numbered from 0.
pub type Boot = u8;
