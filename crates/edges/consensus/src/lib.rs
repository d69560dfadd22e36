//! Consensus: one Raft group per cluster over a deterministic state machine with byte-string commands.
//!
//! Only this crate depends on the Raft library and the storage engines. Its callers see commands, responses, log
//! indexes and the leader.

mod compaction;
mod config;
mod disk;
mod environment;
mod error;
mod fault;
pub mod founding;
mod group;
mod leadership;
mod limits;
mod log;
mod pacing;
mod participation;
#[cfg(feature = "crash-suite")]
mod plant;
#[cfg(feature = "planted-faults")]
pub mod planted;
mod raft_state_machine;
mod raft_types;
mod record;
mod restoration;
mod round_trip;
mod snapshot;
mod stall;
mod state_machine;
#[cfg(feature = "crash-suite")]
pub mod storage;
mod timing;
mod wire;

#[cfg(test)]
mod suite;

pub use compaction::SnapshotEvery;
pub use config::{Engine, GroupConfig};
pub use environment::Environment;
pub use error::{MembershipError, ProposeError, ReadError, StartError};
pub use fault::OnDiskError;
pub use group::{ControlGroup, Members, Proposed};
pub use leadership::Leadership;
pub use limits::{COMMAND_BYTES_MAX, SNAPSHOT_BYTES_MAX};
pub use log::simulated::SimulatedDisk;
pub use restoration::{Beginning, restore};
pub use round_trip::RoundTrip;
pub use state_machine::StateMachine;
pub use timing::{LAN, RELAXED, Timing};
pub use wire::RaftService;
#[cfg(feature = "fuzz")]
pub use wire::fuzz;

/// The gRPC service of [`ControlGroup::service`]; mount it on the node's control port.
pub type RaftServer = wire::pb::raft_server::RaftServer<RaftService>;
