//! The port through which a backend reaches the inputs of its requests and returns their results.

use std::time::Duration;

use bytes::Bytes;
use symphony_protocol::data::{BatchRun, RequestResult};
use symphony_types::PayloadDelay;
use symphony_types::{BootId, FailReason, FrontendId};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The requested inputs in order; none where the request has its outcome already or its frontend is gone.
pub type Payloads = Vec<Option<Bytes>>;

/// The outcome of one request and the bytes of its outputs (empty if it failed).
#[derive(Clone, Debug)]
pub struct ResultToFrontend {
    /// The end.
    pub result: RequestResult,
    /// The outputs.
    pub bytes: Bytes,
}

/// Frontends hold inputs; backends READ them and return results the same way. Implementations: [`crate::LocalPayloads`]
/// within one process, and [`crate::LinkedPayloads`] between processes, by shared memory, TCP or RDMA.
pub trait PayloadTransport: Send + Sync + 'static {
    /// Reads the inputs of `sequences`, which belong to this boot of this frontend. Never fails: an unreadable input is
    /// missing.
    fn read(&self, frontend: FrontendId, boot: BootId, sequences: Vec<u64>) -> impl Future<Output = Payloads> + Send;

    /// Returns results. A result whose frontend cannot be reached is lost; the frontend ends the request by its
    /// deadline.
    fn deliver(&self, frontend: FrontendId, boot: BootId, results: Vec<ResultToFrontend>);

    /// Resolves once everything handed over so far is on its way to its frontend; nothing can be delivered afterwards.
    fn finish(&self) -> impl Future<Output = ()> + Send;

    /// Resolves once the reachable frontends answer, at the latest after `within`: a silent frontend must not keep a
    /// backend from serving the others.
    fn ready(&self, within: Duration) -> impl Future<Output = ()> + Send {
        let _ = within;
        async {}
    }

    /// The measured duration of reads; none before enough is known, or where nothing travels.
    fn delay(&self) -> Option<PayloadDelay> {
        None
    }

    /// The name of the transport, for logs and metrics.
    fn name(&self) -> &'static str;
}

/// The frontend's side of the port: it owns the requests' inputs.
pub trait PayloadFrontend: Send + Sync + 'static {
    /// The input of a request; none if it has its outcome already, or its input is still being decoded.
    fn input(&self, sequence: u64) -> Option<Bytes>;

    /// A receiver for an input that is not there yet; none if it will never come. It ends without an input if the
    /// request ends.
    fn pending_input(&self, sequence: u64) -> Option<oneshot::Receiver<Bytes>> {
        let _ = sequence;
        None
    }

    /// A result came. The request may have its outcome already.
    fn returned(&self, result: ReturnedResult);
}

/// How long a READ waits for inputs that are still being decoded. The reader gives up after two seconds, and a batch
/// much earlier: a later answer gains nothing, and the limit bounds what waits.
pub(crate) const INPUT_WITHIN: Duration = Duration::from_secs(1);

/// The inputs of `sequences`; those that are still being decoded are waited for, together at most [`INPUT_WITHIN`].
pub(crate) async fn inputs(frontend: &(impl PayloadFrontend + ?Sized), sequences: &[u64]) -> Payloads {
    let found = inputs_now(frontend, sequences);
    wait(found, INPUT_WITHIN).await
}

/// An input, or the promise of one.
pub(crate) enum InputState {
    Here(Option<Bytes>),
    Pending(oneshot::Receiver<Bytes>),
}

/// The inputs of `sequences` that are ready now.
pub(crate) fn inputs_now(frontend: &(impl PayloadFrontend + ?Sized), sequences: &[u64]) -> Vec<InputState> {
    let one = |&sequence: &u64| match frontend.input(sequence) {
        Some(input) => InputState::Here(Some(input)),
        None => frontend.pending_input(sequence).map_or(InputState::Here(None), InputState::Pending),
    };
    sequences.iter().map(one).collect()
}

/// Waits for the promised inputs, together at most `within`.
pub(crate) async fn wait(found: Vec<InputState>, within: Duration) -> Payloads {
    let until = Instant::now() + within;
    let mut payloads = Vec::with_capacity(found.len());
    for input in found {
        payloads.push(match input {
            InputState::Here(input) => input,
            InputState::Pending(pending) => tokio::time::timeout_at(until, pending).await.ok().and_then(Result::ok),
        });
    }
    payloads
}

/// A result as its frontend receives it.
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
    /// Which batch that was, and when.
    pub run: BatchRun,
}
