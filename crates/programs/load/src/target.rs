//! Where requests go.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use symphony_types::TensorSpec;

/// Something that answers requests. One is shared by all models and all requests of a run.
pub trait Target: Send + Sync + 'static {
    /// Sends one request and waits for its answer. The engine never waits for it before it sends the next one.
    fn send(&self, request: Request) -> impl Future<Output = Answer> + Send;

    /// Answers so far that came for requests already answered or never sent, on transports where that can happen.
    fn stray_answers(&self) -> u64 {
        0
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Number of the request in the run, from 0; unique over all models.
    pub id: u64,
    /// The model's name.
    pub model: Arc<str>,
    /// Items in the request.
    pub items: u32,
    /// The inputs, in the model's order: description, and the bytes of all items.
    pub inputs: Vec<(TensorSpec, Bytes)>,
    /// A deadline to ask for; none leaves it to the model's SLO.
    pub timeout: Option<Duration>,
}

/// What came back for a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// How the request ended, by the server's word.
    pub end: End,
    /// The id that the answer carries; none if it carries none, as errors do.
    pub id: Option<u64>,
    /// Bytes of all outputs.
    pub bytes: u64,
    /// The outputs; empty unless the request was answered.
    pub outputs: Vec<OutputTensor>,
    /// Items of the batch that it ran in, if the server says.
    pub batch: Option<u32>,
}

/// One output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputTensor {
    /// Its name.
    pub name: String,
    /// Its bytes, little-endian, all items.
    pub data: Bytes,
}

/// How a request ended, by the server's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Answered, by its deadline as far as the server knows.
    Ok,
    /// Answered or refused after its deadline.
    Late,
    /// Given up on purpose, for this reason.
    Dropped(Cow<'static, str>),
    /// Ended by an error, for this reason.
    Failed(Cow<'static, str>),
}

/// Why a target cannot be reached.
#[derive(Debug, thiserror::Error)]
#[error("cannot reach {addr}: {reason}; expected a frontend's host:port")]
pub struct ConnectError {
    /// The address.
    pub addr: String,
    /// What went wrong.
    pub reason: String,
}

impl Answer {
    /// An answer without outputs.
    #[must_use]
    pub fn ended(end: End) -> Self {
        Self { end, id: None, bytes: 0, outputs: Vec::new(), batch: None }
    }
}
