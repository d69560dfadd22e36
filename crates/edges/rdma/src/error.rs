//! Errors of RDMA, for the person on call.

use std::io;

use crate::endpoint::EndpointError;
use crate::flow::FlowError;
use crate::port::PortError;
use crate::segment::SegmentError;

/// Why there is no connection, or no device.
#[derive(Debug, thiserror::Error)]
pub enum RdmaError {
    /// No port can be used.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The other end described itself in an impossible way.
    #[error("the other end: {0}")]
    Endpoint(#[from] EndpointError),
    /// Keys could not be taken back from one peer at a time.
    #[error("device `{0}` has no memory windows of type 2B, by which each peer gets a key of its own")]
    NoWindows(String),
    /// As many connections as the device's queue has room for.
    #[error("there are {0} RDMA connections already, and room for no more")]
    Full(usize),
    /// The system lets no such memory stay in memory.
    #[error(
        "{bytes} bytes cannot be registered: {source}; raise the limit of locked memory (LimitMEMLOCK=, ulimit -l), or make \
             payloads.pool_mb smaller"
    )]
    Pinned {
        /// How much it is.
        bytes: usize,
        /// The system's error.
        source: io::Error,
    },
    /// The library or the system refused.
    #[error("{what}: {source}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
    /// A fresh connection broke.
    #[error(transparent)]
    Broken(#[from] Broken),
}

impl RdmaError {
    pub(crate) const fn system(what: &'static str, source: io::Error) -> Self {
        Self::System { what, source }
    }

    /// With the system's last error.
    pub(crate) fn last(what: &'static str) -> Self {
        Self::system(what, io::Error::last_os_error())
    }

    /// As [`Self::last`], of memory.
    pub(crate) fn pinned(bytes: usize) -> Self {
        Self::Pinned { bytes, source: io::Error::last_os_error() }
    }
}

/// Why a connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// This end has ended it.
    #[error("the RDMA connection has ended")]
    Ended,
    /// The other end is gone, as another connection to it has shown.
    #[error("the other end of the RDMA connection is gone")]
    Gone,
    /// Work failed.
    #[error("the RDMA connection failed: {}", status_text(*.0))]
    Failed(u32),
    /// The other end sends what is no segment.
    #[error("the other end of the RDMA connection sends what is no segment: {0}")]
    Segment(#[from] SegmentError),
    /// A segment is not the next one.
    #[error("segment {came} of the RDMA connection came instead of {expected}")]
    Order {
        /// Number of the segment that came.
        came: u64,
        /// Which should have come.
        expected: u64,
    },
    /// The other end does not keep to what it may send.
    #[error("the other end of the RDMA connection does not count right: {0}")]
    Flow(#[from] FlowError),
    /// The thread that polls completions has ended.
    #[error("this process no longer polls RDMA completions; see its log, and restart it")]
    PollerEnded,
    /// The device takes no more work.
    #[error("the RDMA device refuses work (error {0})")]
    Refused(i32),
}

impl Broken {
    pub(crate) fn refused(error: &io::Error) -> Self {
        Self::Refused(error.raw_os_error().unwrap_or(0))
    }
}

impl From<Broken> for io::Error {
    fn from(broken: Broken) -> Self {
        Self::new(io::ErrorKind::ConnectionReset, broken)
    }
}

/// The verbs' codes of failed work, as far as they help a reader.
fn status_text(status: u32) -> String {
    let text = match status {
        5 => "its work was given up",
        9 => "the other end cannot do what is asked",
        10 => "the other end does not let this one read there: the key was taken back, or is another one's",
        11 => "the other end failed",
        12 => "no answer came",
        13 => "the other end takes nothing",
        _ => return format!("status {status}"),
    };
    format!("{text} (status {status})")
}
