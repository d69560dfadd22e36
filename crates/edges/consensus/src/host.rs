//! Where a replica runs.

use std::io;

use crate::config::SnapshotEvery;
use crate::log::simulated::SimulatedDisk;

/// What a replica's disk and blocking work are.
#[derive(Clone, Debug, Default)]
pub enum Host {
    /// A machine: the engine of the configuration, threads for what blocks.
    #[default]
    Machine,
    /// A simulation: a disk in memory that outlives the replica, and everything in tasks of the one thread that
    /// simulates, so that nothing but the simulation decides what comes first. Snapshots are files here too. Its
    /// network is that of the [`Net`](symphony_net::Net) in the configuration.
    Simulation {
        /// The log's disk.
        disk: SimulatedDisk,
        /// How often the log is folded: far more often than on a machine, so that a short run sees it.
        snapshot: SnapshotEvery,
    },
}

impl Host {
    pub(crate) const fn blocking(&self) -> Blocking {
        match self {
            Self::Machine => Blocking::OnThreads,
            Self::Simulation { .. } => Blocking::InPlace,
        }
    }
}

/// Where what blocks is done.
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
