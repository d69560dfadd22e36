//! A batch plan inside the backend, from acceptance to report.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_executor::{MemoryUse, ModelExecutor};
use symphony_protocol::execute::PlannedRequest;
use symphony_types::{FailReason, ModelId, RequestId, Token};
use tokio::sync::mpsc::UnboundedSender;

use crate::late_frontends::FrontendBoot;

/// What one frontend has answered.
#[derive(Debug)]
pub(crate) struct InputsOfFrontend {
    pub(crate) frontend: FrontendBoot,
    /// Place in the plan's requests, and the bytes unless the request has its outcome already, or the frontend cannot be reached.
    pub(crate) inputs: Vec<(usize, Option<Bytes>)>,
}

/// An accepted plan on its way to the GPU's thread; its inputs follow while it waits.
#[derive(Debug)]
pub(crate) struct AcceptedPlan {
    pub(crate) token: Token,
    pub(crate) sequence: u64,
    pub(crate) model: ModelId,
    pub(crate) start: Instant,
    pub(crate) requests: Vec<PlannedRequest>,
    /// Inputs as their frontends send them; it ends when all frontends have answered or failed to.
    pub(crate) inputs: mpsc::Receiver<InputsOfFrontend>,
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
    /// From when to when it ran; none if there was nothing to run.
    pub(crate) ran: Option<(Instant, Instant)>,
    pub(crate) latency: Duration,
    /// What its model has been measured to take so far.
    pub(crate) memory: Option<MemoryUse>,
    pub(crate) finished: Vec<RequestId>,
    pub(crate) failed: Vec<(RequestId, FailReason)>,
}

/// Says, when its last holder drops it, that a model has gone from all GPUs with its memory.
#[derive(Debug)]
pub(crate) struct LetGo {
    pub(crate) model: ModelId,
    pub(crate) gone: UnboundedSender<ModelId>,
}

impl Drop for LetGo {
    fn drop(&mut self) {
        let _ = self.gone.send(self.model);
    }
}

/// What a GPU's thread is told.
#[derive(Debug)]
pub(crate) enum GpuOrder {
    Load(ModelId, Box<dyn ModelExecutor>),
    /// Once what was accepted before has run. The word goes when the model has.
    Unload(ModelId, Arc<LetGo>),
    Run(AcceptedPlan),
}
