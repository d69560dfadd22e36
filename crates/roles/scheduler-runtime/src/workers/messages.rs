//! What the workers of one sub-cluster are told.

use std::collections::HashSet;
use std::sync::Arc;

use symphony_protocol::dispatch::{RequestHeader, ToFrontend};
use symphony_protocol::execute::ToBackend;
use symphony_scheduler::{Account, DataDelay, GrantWhy, ModelQueueConfig, PoolSignal};
use symphony_transport::LinkSender;
use symphony_types::{
    BackendId, BootId, FailReason, FrontendId, GpuClass, GpuClasses, GpuId, LatencyProfile, ModelId, Nanos, RequestId,
    Time, Token,
};
use tokio::sync::mpsc::UnboundedSender;

use crate::workers::load::ModelCounts;

/// To a model worker. GPUs and models are ordinals of the sub-cluster unless they carry an id type.
#[derive(Debug)]
pub(crate) enum ModelMessage {
    /// Serve this model, and count what it has to do.
    Add { model: ModelId, ordinal: u32, config: Box<ModelQueueConfig>, counts: Arc<ModelCounts> },
    /// The profile of a model on a class of GPUs that has come up since it is served.
    Profile { model: ModelId, class: GpuClass, profile: Box<LatencyProfile> },
    /// How long a model's inputs take to come.
    DataDelay { model: ModelId, data: DataDelay },
    /// The sub-cluster has GPUs of these classes now.
    Classes { classes: GpuClasses },
    /// Whether every backend that is linked is cordoned or draining: what waits then waits for nobody.
    AllDrained(bool),
    /// Serve it no longer.
    Remove { model: ModelId },
    /// Plans for this GPU go there.
    Route { gpu: u32, route: GpuRoute },
    /// The GPU is lost, with everything sent to it under that seal.
    Unroute { gpu: u32, seal: Seal },
    /// A frontend is there. What it announced on an earlier link it will announce again.
    Frontend { peer: Peer, sender: LinkSender<ToFrontend> },
    /// The link has ended; what its frontend still wants it will announce again.
    FrontendGone { peer: Peer },
    /// Requests; their budgets count from `received`.
    Submit { peer: Peer, received: Time, requests: Vec<RequestHeader>, redriven: bool },
    /// Requests whose clients have gone.
    Cancel { frontend: FrontendId, boot: BootId, requests: Vec<(u64, u32)> },
    /// The rank worker gives a GPU; `plan` is the next on it.
    Grant { ordinal: u32, class: GpuClass, free_at: Time, plan: PlanId, why: GrantWhy },
    /// What the sub-cluster says to all its models.
    Pool(PoolSignal),
    /// A plan is done; it started `start_late` after its planned start and took `latency`. Some of its requests may
    /// have failed.
    Done { plan: PlanId, start_late: Nanos, latency: Nanos, failed: Vec<(RequestId, FailReason)> },
    /// A plan was not accepted.
    Refused { plan: PlanId },
    /// The backend of this seal already has (or had) these requests.
    Known { seal: Seal, requests: Arc<HashSet<RequestId>> },
    /// Every backend has answered: re-driven requests need not wait any longer.
    Recovered,
    /// A planted fault: the thread hangs until the other end is dropped.
    #[cfg(test)]
    Hang(std::sync::mpsc::Receiver<()>),
    /// A planted fault: the turn panics.
    #[cfg(test)]
    Panic,
}

/// Numbers the times that a GPU came into use, over all links and lives of its backend. What speaks of an older one is
/// stale: the plans of a new seal count from 1 again.
pub(crate) type Seal = u64;

/// A plan of a GPU, or the place for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PlanId {
    pub(crate) gpu: u32,
    pub(crate) seal: Seal,
    pub(crate) sequence: u64,
}

/// One link of one life of a frontend. The end of a link is told by another task than the beginning of the next one,
/// and may be told later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) frontend: FrontendId,
    pub(crate) boot: BootId,
    pub(crate) link: u64,
}

/// Where the plans of a GPU go.
#[derive(Clone, Debug)]
pub(crate) struct GpuRoute {
    pub(crate) gpu: GpuId,
    pub(crate) class: GpuClass,
    pub(crate) seal: Seal,
    pub(crate) token: Token,
    pub(crate) backend: BackendId,
    pub(crate) backend_boot: BootId,
    pub(crate) sender: LinkSender<ToBackend>,
}

/// To the rank worker.
#[derive(Debug)]
pub(crate) enum RankMessage {
    /// The answer to a grant.
    Release { ordinal: u32, plan: PlanId, free_at: Time, used: bool },
    /// The backend has sealed the GPU: it may be used from `free_at` on, and its plans count from 1 again.
    Sealed { gpu: u32, class: GpuClass, seal: Seal, free_at: Time },
    /// The GPU is lost.
    Lost { gpu: u32, seal: Seal },
    /// A plan is done; everything accepted before is done at `free_at`.
    Done { plan: PlanId, free_at: Time },
    /// A plan had its turn and did not run.
    Refused { plan: PlanId },
    /// What the models of a worker saw and gave up since it told last.
    Account(Box<Account>),
    /// Whole GPUs are to be left idle.
    Consolidate,
    /// The model is gone.
    Forget { ordinal: u32 },
    /// The GPU is given to nobody any more; `round` comes back once no plan can follow those that were sent.
    Retire { gpu: u32, seal: Seal, round: u64, done: UnboundedSender<u64> },
    /// A retired GPU may be given again.
    Resume { gpu: u32, seal: Seal },
    /// The GPU is too slow to be given to anybody, or is not any more.
    Quarantine { gpu: u32, out: bool },
}
