//! How long reads take, by transport: what the delays of a schedule are to be chosen by.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use symphony_telemetry::{DurationCounts, DurationHistogram};
use symphony_types::PayloadDelay;
use symphony_types::{FrontendId, Nanos};

/// By which way a read got its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// All out of shared memory.
    SharedMemory,
    /// All READ by the network out of the frontend's memory.
    Rdma,
    /// At least one asked for, and sent over the RDMA connection.
    RdmaSend,
    /// At least one asked for, and sent over the data link.
    Tcp,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; Self::COUNT] = [Self::SharedMemory, Self::Rdma, Self::RdmaSend, Self::Tcp];

    /// How many there are.
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

/// What was read by one way.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadCounts {
    /// How long each read took, of all the inputs that one batch has from one frontend.
    pub times: DurationCounts,
    /// Inputs that came this way.
    pub inputs: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The reads of a backend, or from one frontend.
#[derive(Debug, Default)]
pub(crate) struct ReadTimes([Mutex<OneWay>; Way::COUNT]);

#[derive(Debug, Default)]
struct OneWay {
    /// It has one writer at a time: whoever holds the lock.
    times: DurationHistogram,
    inputs: u64,
    bytes: u64,
}

impl ReadTimes {
    /// A read took so long.
    pub(crate) fn took(&self, way: Way, time: Duration) {
        self.of(way).times.record(Nanos::new(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
    }

    /// Inputs came that way.
    pub(crate) fn came(&self, way: Way, inputs: usize, bytes: usize) {
        let mut one = self.of(way);
        one.inputs += inputs as u64;
        one.bytes += bytes as u64;
    }

    /// What was counted so far.
    pub(crate) fn read(&self, way: Way) -> ReadCounts {
        let one = self.of(way);
        ReadCounts { times: one.times.read(), inputs: one.inputs, bytes: one.bytes }
    }

    fn of(&self, way: Way) -> MutexGuard<'_, OneWay> {
        self.0[way as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One frontend, as a backend reaches it now.
#[derive(Clone, Copy, Debug)]
pub struct PairReading {
    /// The frontend.
    pub frontend: FrontendId,
    /// What the two have agreed on.
    pub way: Way,
    /// Reads since the link was made, by [`Way::ALL`].
    pub reads: [ReadCounts; Way::COUNT],
}

/// Everything that a backend knows of its reads.
#[derive(Clone, Debug)]
pub struct Readings {
    /// All reads, by [`Way::ALL`].
    pub reads: [ReadCounts; Way::COUNT],
    /// Inputs that were damaged in the memory of their frontend, and were asked for over the link instead.
    pub damaged: u64,
    /// What of them is to be planned for.
    pub delay: Option<PayloadDelay>,
    /// The frontends that it is linked to.
    pub pairs: Vec<PairReading>,
}
