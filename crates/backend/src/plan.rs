//! A batch plan inside the backend, from acceptance to report.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_executor::ModelExecutor;
use symphony_protocol::execute::PlannedRequest;
use symphony_types::{FailReason, ModelId, RequestId, Token};

/// An accepted plan on its way to the GPU's thread; its inputs follow while it waits.
#[derive(Debug)]
pub(crate) struct AcceptedPlan {
    pub(crate) token: Token,
    pub(crate) sequence: u64,
    pub(crate) model: ModelId,
    pub(crate) start: Instant,
    pub(crate) requests: Vec<PlannedRequest>,
    /// The inputs in the order of the requests; none for a request that has its outcome already.
    pub(crate) inputs: mpsc::Receiver<Vec<Option<Bytes>>>,
}

/// How a plan ended.
#[derive(Debug)]
pub(crate) struct PlanReport {
    /// Index of the GPU in this backend.
    pub(crate) gpu: usize,
    pub(crate) token: Token,
    pub(crate) sequence: u64,
    pub(crate) model: ModelId,
    pub(crate) start_late: Duration,
    pub(crate) latency: Duration,
    pub(crate) finished: Vec<RequestId>,
    pub(crate) failed: Vec<(RequestId, FailReason)>,
}

/// What a GPU's thread is told.
#[derive(Debug)]
pub(crate) enum GpuOrder {
    Load(ModelId, Box<dyn ModelExecutor>),
    Unload(ModelId),
    Run(AcceptedPlan),
}
