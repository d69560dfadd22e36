//! What the workers of one sub-cluster are told.

use std::collections::HashSet;
use std::sync::Arc;

use symphony_protocol::dispatch::{RequestHeader, ToFrontend};
use symphony_protocol::execute::ToBackend;
use symphony_scheduler::ModelQueueConfig;
use symphony_transport::LinkSender;
use symphony_types::{BackendId, BootId, FrontendId, GpuId, ModelId, Nanos, RequestId, Time, Token};

/// To a model worker. GPUs and models are ordinals of the sub-cluster unless they carry an id type.
#[derive(Debug)]
pub(crate) enum ModelMessage {
    /// Serve this model.
    Add { model: ModelId, ordinal: u32, config: Box<ModelQueueConfig> },
    /// Serve it no longer.
    Remove { model: ModelId },
    /// Plans for this GPU go there.
    Route { gpu: u32, route: GpuRoute },
    /// The GPU is lost, with everything sent to it.
    Unroute { gpu: u32 },
    /// A frontend is there.
    Frontend { frontend: FrontendId, boot: BootId, sender: LinkSender<ToFrontend> },
    /// It is gone; what it still wants it will announce again.
    FrontendGone { frontend: FrontendId, boot: BootId },
    /// Requests; their budgets count from `received`.
    Submit { frontend: FrontendId, boot: BootId, received: Time, requests: Vec<RequestHeader>, redriven: bool },
    /// Requests whose clients have gone.
    Cancel { frontend: FrontendId, boot: BootId, requests: Vec<(u64, u32)> },
    /// The rank worker gives a GPU; plan `sequence` is the next on it.
    Grant { ordinal: u32, gpu: u32, free_at: Time, sequence: u64 },
    /// A plan is done; it started `start_late` after its planned start and took `latency`.
    Done { gpu: u32, sequence: u64, start_late: Nanos, latency: Nanos },
    /// A plan was not accepted.
    Refused { gpu: u32, sequence: u64 },
    /// Backends already have (or had) these requests.
    Known { requests: Arc<HashSet<RequestId>> },
    /// Every backend has answered: re-driven requests need not wait any longer.
    Recovered,
}

/// Where the plans of a GPU go.
#[derive(Clone, Debug)]
pub(crate) struct GpuRoute {
    pub(crate) gpu: GpuId,
    pub(crate) token: Token,
    pub(crate) backend: BackendId,
    pub(crate) backend_boot: BootId,
    pub(crate) sender: LinkSender<ToBackend>,
}

/// To the rank worker.
#[derive(Debug)]
pub(crate) enum RankMessage {
    /// The answer to a grant.
    Release { ordinal: u32, gpu: u32, free_at: Time, used: bool },
    /// The backend has sealed the GPU: it may be used from `free_at` on, and its plans count from 1 again.
    Sealed { gpu: u32, free_at: Time },
    /// The GPU is lost.
    Lost { gpu: u32 },
    /// A plan is done; everything accepted before is done at `free_at`.
    Done { gpu: u32, sequence: u64, free_at: Time },
    /// The model is gone.
    Forget { ordinal: u32 },
}
