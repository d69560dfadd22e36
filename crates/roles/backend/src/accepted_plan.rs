//! A batch plan inside the backend, from acceptance to report.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_executor::{MemoryUse, ModelExecutor};
use symphony_protocol::execute::PlannedRequest;
use symphony_types::{FailReason, ModelId, RequestId, Token};
use tokio::sync::mpsc::UnboundedSender;

use crate::unresponsive_frontends::FrontendBoot;

/// The answer of one frontend.
#[derive(Debug)]
pub(crate) struct InputsOfFrontend {
    pub(crate) frontend: FrontendBoot,
    /// Position in the plan's requests, and the bytes; no bytes if the request has its outcome already, or the
    /// frontend is unreachable.
    pub(crate) inputs: Vec<(usize, Option<Bytes>)>,
    /// When it came.
    pub(crate) at: Instant,
}

/// An accepted plan on its way to the GPU's thread; its inputs follow.
#[derive(Debug)]
pub(crate) struct AcceptedPlan {
    pub(crate) token: Token,
    pub(crate) sequence: u64,
    pub(crate) model: ModelId,
    /// When it was accepted.
    pub(crate) accepted: Instant,
    pub(crate) start: Instant,
    pub(crate) requests: Vec<PlannedRequest>,
    /// Inputs as their frontends send them; it ends when all frontends have answered or failed to.
    pub(crate) inputs: mpsc::Receiver<InputsOfFrontend>,
}

impl AcceptedPlan {
    /// Whether it has rows of other models than its own.
    pub(crate) fn is_mixed(&self) -> bool {
        self.requests.iter().any(|request| request.model_in(self.model) != self.model)
    }
}

/// The end of a plan.
#[derive(Debug)]
pub(crate) struct PlanReport {
    /// Index of the GPU in this backend.
    pub(crate) gpu: usize,
    pub(crate) token: Token,
    pub(crate) sequence: u64,
    pub(crate) model: ModelId,
    pub(crate) start_late: Duration,
    /// Start and end of its run; none if there was nothing to run.
    pub(crate) ran: Option<(Instant, Instant)>,
    pub(crate) latency: Duration,
    /// The measured memory of its model so far.
    pub(crate) memory: Option<MemoryUse>,
    pub(crate) finished: Vec<RequestId>,
    pub(crate) failed: Vec<(RequestId, FailReason)>,
    /// Whether the inputs of the next plan are there: then it begins at once.
    pub(crate) next_is_ready: bool,
}

/// Dropped by its last holder, it signals that a model has gone from all GPUs, with its memory.
#[derive(Debug)]
pub(crate) struct UnloadGuard {
    pub(crate) model: ModelId,
    pub(crate) gone: UnboundedSender<ModelId>,
}

impl Drop for UnloadGuard {
    fn drop(&mut self) {
        let _ = self.gone.send(self.model);
    }
}

/// Orders to a GPU's thread.
#[derive(Debug)]
pub(crate) enum GpuOrder {
    Load(ModelId, Box<dyn ModelExecutor>),
    /// Drop the model after the plans accepted before. The signal is sent when it has gone.
    Unload(ModelId, Arc<UnloadGuard>),
    Run(AcceptedPlan),
}
