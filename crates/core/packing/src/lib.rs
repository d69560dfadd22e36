//! Squishy bin packing: which sessions share a GPU, with which duty cycle and batch sizes.
//!
//! From *Nexus: A GPU Cluster Engine for Accelerating DNN-Based Video Analysis* (SOSP 2019), section 6.1.

mod fit;
mod load;
mod node;
mod oblivious;
mod repack;
mod session;
mod slots;
mod squishy;

pub use fit::fit_nodes;
pub use load::nodes_at_most;
pub use node::{PackedNode, PackedSession};
pub use oblivious::batch_oblivious;
pub use repack::{RepackedNode, moves, repack};
pub use session::{NODES_MAX, SESSIONS_MAX, Session};
pub use squishy::squishy_bin_packing;
