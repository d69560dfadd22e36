//! The environment of a replica.

use std::io;

use crate::compaction::SnapshotEvery;
use crate::log::simulated::SimulatedDisk;

/// The disk of a replica, and how it does blocking work.
#[derive(Clone, Debug, Default)]
pub enum Environment {
    /// A machine: the configured engine, and threads for blocking work.
    #[default]
    Machine,
    /// A simulation: a disk in memory that outlives the replica, and all work in tasks of the one simulation thread,
    /// so that the simulation alone decides the order. Snapshots are files here too. The network is the simulated
    /// [`Net`](symphony_net::Net) in the configuration.
    Simulation {
        /// The log's disk.
        disk: SimulatedDisk,
        /// How often the log is compacted: far more often than on a machine, so that a short run covers it.
        snapshot: SnapshotEvery,
    },
}

impl Environment {
    pub(crate) const fn blocking(&self) -> Blocking {
        match self {
            Self::Machine => Blocking::OnThreads,
            Self::Simulation { .. } => Blocking::InPlace,
        }
    }
}

/// Where blocking work runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Blocking {
    #[default]
    OnThreads,
    InPlace,
}

impl Blocking {
    pub(crate) async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        match self {
            Self::OnThreads => tokio::task::spawn_blocking(work).await.map_err(io::Error::other),
            Self::InPlace => Ok(work()),
        }
    }
}
