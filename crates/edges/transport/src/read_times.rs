//! How long reads take, by transport: the basis for the delays in schedules.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use symphony_telemetry::{DurationCounts, DurationHistogram};
use symphony_types::PayloadDelay;
use symphony_types::{FrontendId, Nanos};

/// How the inputs of a read arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadPath {
    /// All from shared memory.
    SharedMemory,
    /// All READ by the network from the frontend's memory.
    Rdma,
    /// At least one requested, and sent over the RDMA connection.
    RdmaSend,
    /// At least one requested, and sent over the data link.
    Tcp,
}

impl ReadPath {
    /// Every way of reading.
    pub const ALL: [Self; Self::COUNT] = [Self::SharedMemory, Self::Rdma, Self::RdmaSend, Self::Tcp];

    /// Their number.
    pub const COUNT: usize = 4;

    /// The name in logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::SharedMemory => "shared-memory",
            Self::Rdma => "rdma",
            Self::RdmaSend => "rdma-send",
            Self::Tcp => "tcp",
        }
    }
}

/// The reads of one way.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadCounts {
    /// How long each read took, for all inputs that one batch has from one frontend.
    pub times: DurationCounts,
    /// Inputs that came this way.
    pub inputs: u64,
    /// Bytes of these inputs.
    pub bytes: u64,
}

/// The reads of a backend, or from one frontend.
#[derive(Debug, Default)]
pub(crate) struct ReadTimes([Mutex<ReadPathTimes>; ReadPath::COUNT]);

#[derive(Debug, Default)]
struct ReadPathTimes {
    /// It has one writer at a time: the holder of the lock.
    times: DurationHistogram,
    inputs: u64,
    bytes: u64,
}

impl ReadTimes {
    /// Records the duration of a read.
    pub(crate) fn took(&self, way: ReadPath, time: Duration) {
        self.of(way).times.record(Nanos::new(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
    }

    /// Counts inputs that came this way.
    pub(crate) fn came(&self, way: ReadPath, inputs: usize, bytes: usize) {
        let mut one = self.of(way);
        one.inputs += inputs as u64;
        one.bytes += bytes as u64;
    }

    /// The counts so far.
    pub(crate) fn read(&self, way: ReadPath) -> ReadCounts {
        let one = self.of(way);
        ReadCounts { times: one.times.read(), inputs: one.inputs, bytes: one.bytes }
    }

    fn of(&self, way: ReadPath) -> MutexGuard<'_, ReadPathTimes> {
        self.0[way as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One frontend, as a backend reaches it now.
#[derive(Clone, Copy, Debug)]
pub struct PairReading {
    /// The frontend whose inputs are read.
    pub frontend: FrontendId,
    /// What the two have agreed on.
    pub way: ReadPath,
    /// Reads since the link was made, by [`ReadPath::ALL`].
    pub reads: [ReadCounts; ReadPath::COUNT],
}

/// Everything that a backend knows about its reads.
#[derive(Clone, Debug)]
pub struct Readings {
    /// All reads, by [`ReadPath::ALL`].
    pub reads: [ReadCounts; ReadPath::COUNT],
    /// Inputs that were damaged in the memory of their frontend, and were requested over the link instead.
    pub damaged: u64,
    /// The delay to plan for.
    pub delay: Option<PayloadDelay>,
    /// The linked frontends.
    pub pairs: Vec<PairReading>,
}
