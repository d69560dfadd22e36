//! The port through which requests are sent.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use symphony_types::{Signature, TensorSpec};

/// A service that answers requests; shared by all models and requests of a run.
pub trait Target: Send + Sync + 'static {
    /// Sends one request and waits for its answer. The engine sends the next one without waiting for it.
    fn send(&self, request: Request) -> impl Future<Output = Answer> + Send;

    /// Answers so far for requests that were answered already or never sent, on transports where that can happen.
    fn stray_answers(&self) -> u64 {
        0
    }
}

/// A public port, which says what its clients may know of a model.
pub trait DescribeModel: Sync {
    /// The model or pipeline that clients call by this name, or words why it is not known.
    fn describe(&self, model: &str) -> impl Future<Output = Result<ModelDescription, String>> + Send;
}

/// What clients may know of a model or a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelDescription {
    /// Its name, without a version.
    pub name: String,
    /// What executes it: [`EMULATED`](Self::EMULATED), [`PIPELINE`](Self::PIPELINE) or something else.
    pub platform: String,
    /// Latency objective.
    pub slo: Duration,
    /// Its inputs, in order: the name, and what a tensor is like. Encoded pictures are none.
    pub inputs: Vec<(String, Option<TensorSpec>)>,
    /// Names of its outputs.
    pub outputs: Vec<String>,
}

impl ModelDescription {
    /// The platform of an emulated model.
    pub const EMULATED: &'static str = "emulated";
    /// The platform of a pipeline.
    pub const PIPELINE: &'static str = "ensemble";

    /// Its inputs as a signature; none if one of them is an encoded picture.
    #[must_use]
    pub fn tensors(&self) -> Option<Signature> {
        let inputs = self.inputs.iter().map(|(_, tensor)| tensor.clone()).collect::<Option<_>>()?;
        Some(Signature { inputs, outputs: Vec::new() })
    }
}

/// What is sent to a server once, at a time that the plan sets.
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
    /// The input that is given as encoded pictures.
    pub pictures: Option<EncodedPictures>,
    /// The deadline to send; without one, the model's SLO holds.
    pub timeout: Option<Duration>,
}

/// JPEG or PNG files for an input.
#[derive(Clone, Debug)]
pub struct EncodedPictures {
    /// The input's name in the model's signature.
    pub input: Arc<str>,
    /// One for each item.
    pub encoded: Vec<Bytes>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// How the request ended, according to the server.
    pub end: End,
    /// The id in the answer; none if it has none, as in errors.
    pub id: Option<u64>,
    /// Bytes of all outputs.
    pub bytes: u64,
    /// The outputs; empty unless the request was answered.
    pub outputs: Vec<OutputTensor>,
    /// Items of the batch that it ran in, if the server reports it.
    pub batch: Option<u32>,
}

/// A tensor in the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputTensor {
    /// Its name in the model's signature.
    pub name: String,
    /// Its bytes, little-endian, all items.
    pub data: Bytes,
}

/// How a request ended, according to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Answered, by its deadline as far as the server knows.
    Ok,
    /// Answered or refused after its deadline.
    Late,
    /// Refused before it was taken in, for this reason: too many are in flight, or a quota is used up.
    Refused(Cow<'static, str>),
    /// Dropped on purpose, for this reason.
    Dropped(Cow<'static, str>),
    /// Failed, for this reason.
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
