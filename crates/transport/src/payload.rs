//! The port through which a backend reaches the inputs of its requests and returns their results.

use bytes::Bytes;
use symphony_protocol::data::RequestResult;
use symphony_types::{BootId, FailReason, FrontendId};

/// The inputs asked for, in the order asked; none where the request has its outcome already or its owner is gone.
pub type Payloads = Vec<Option<Bytes>>;

/// One request's end and the bytes of its outputs (empty if it failed).
#[derive(Clone, Debug)]
pub struct ResultToOwner {
    /// The end.
    pub result: RequestResult,
    /// The outputs.
    pub bytes: Bytes,
}

/// Frontends hold inputs; backends READ them and return results the same way. How that is done is [`crate::LocalPayloads`]
/// within one process, and [`crate::LinkedPayloads`] between processes: by shared memory or by TCP.
pub trait PayloadTransport: Send + Sync + 'static {
    /// Reads the inputs of `sequences`, which belong to that life of that frontend. Never fails: what cannot be read
    /// is none.
    fn read(&self, frontend: FrontendId, boot: BootId, sequences: Vec<u64>) -> impl Future<Output = Payloads> + Send;

    /// Returns results. A result whose owner cannot be reached is lost; the owner ends the request by its deadline.
    fn deliver(&self, frontend: FrontendId, boot: BootId, results: Vec<ResultToOwner>);

    /// Resolves once everything handed over so far is on its way to its owner; nothing can be delivered afterwards.
    fn finish(&self) -> impl Future<Output = ()> + Send;

    /// The name of the transport, for logs and metrics.
    fn name(&self) -> &'static str;
}

/// The owner's side of the port: whoever has the requests.
pub trait PayloadOwner: Send + Sync + 'static {
    /// The input of a request; none if it has its outcome already.
    fn input(&self, sequence: u64) -> Option<Bytes>;

    /// A result came. The request may have its outcome already.
    fn returned(&self, result: ReturnedResult);
}

/// A result as its owner gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnedResult {
    /// The request.
    pub sequence: u64,
    /// Its outputs, or why there are none.
    pub outcome: Result<Bytes, FailReason>,
    /// Items of the whole batch it ran in.
    pub batch: u32,
    /// Execution time of that batch in nanoseconds.
    pub execution_ns: u64,
}
