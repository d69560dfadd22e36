//! Messages to the workers of one sub-cluster.

use std::collections::HashSet;
use std::sync::Arc;

use symphony_protocol::dispatch::{RequestHeader, ToFrontend};
use symphony_protocol::execute::ToBackend;
use symphony_scheduler::{Account, DataDelay, GrantWhy, ModelQueueConfig, PoolSignal};
use symphony_transport::LinkSender;
use symphony_types::{
    BackendId, BootId, FailReason, FamilyProfile, FrontendId, GpuClass, GpuClasses, GpuId, LatencyProfile, ModelId,
    Nanos, RequestId, Time, Token,
};
use tokio::sync::mpsc::UnboundedSender;

use crate::workers::load::ModelCounts;

/// To a model worker. GPUs and models are ordinals of the sub-cluster, except where they have an id type.
#[derive(Debug)]
pub(crate) enum ModelMessage {
    /// Serve this model, and count its load.
    Add { model: ModelId, name: Arc<str>, ordinal: u32, config: Box<ModelQueueConfig>, counts: Arc<ModelCounts> },
    /// Serve a model differently than before: with another SLO, policy or value. What waits for it waits on.
    Change { model: ModelId, ordinal: u32, config: Box<ModelQueueConfig> },
    /// Models that are served have these queues from here on, in place of those that they are in: some share one now,
    /// or no longer do. What waits for them waits on.
    Regroup { queues: Vec<NewQueue> },
    /// The profile of a served model on a class of GPUs that has appeared since.
    Profile { model: ModelId, class: GpuClass, profile: Box<LatencyProfile> },
    /// How long a model's inputs take to arrive.
    DataDelay { model: ModelId, data: DataDelay },
    /// The sub-cluster has GPUs of these classes now.
    Classes { classes: GpuClasses },
    /// Whether all linked backends are cordoned or draining: then nothing will run waiting requests.
    AllDrained(bool),
    /// Stop serving it.
    Remove { model: ModelId },
    /// Sets where plans for this GPU are sent.
    Route { gpu: u32, route: GpuRoute },
    /// The GPU is lost, with all plans sent to it under that seal.
    Unroute { gpu: u32, seal: SealNumber },
    /// A frontend has linked. It will announce again what it announced on an earlier link.
    Frontend { peer: Peer, sender: LinkSender<ToFrontend> },
    /// The link has ended; its frontend will announce again what it still wants.
    FrontendGone { peer: Peer },
    /// Announced requests; their budgets count from `received`.
    Announce { peer: Peer, received: Time, requests: Vec<RequestHeader>, redriven: bool },
    /// Requests whose clients have gone.
    Cancel { frontend: FrontendId, boot: BootId, requests: Vec<(u64, u32)> },
    /// The rank worker grants a GPU; `plan` is the next plan on it.
    Grant { ordinal: u32, class: GpuClass, free_at: Time, plan: PlanId, why: GrantWhy },
    /// A signal of the sub-cluster to all its models.
    Pool(PoolSignal),
    /// A plan is done; it started `start_late` after its planned start and took `latency`. Some of its requests may
    /// have failed.
    Done { plan: PlanId, start_late: Nanos, latency: Nanos, failed: Vec<(RequestId, FailReason)> },
    /// A plan was not accepted.
    Refused { plan: PlanId },
    /// The backend of this seal already has (or had) these requests.
    Known { seal: SealNumber, requests: Arc<HashSet<RequestId>> },
    /// Every backend has answered the seal: redriven requests need not wait any longer.
    AllSealed,
    /// A planted fault: the thread hangs until the other end is dropped.
    #[cfg(test)]
    Hang(std::sync::mpsc::Receiver<()>),
    /// A planted fault: the turn panics.
    #[cfg(test)]
    Panic,
}

/// A model of a queue, and where its load is counted.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) id: ModelId,
    /// For tapes.
    pub(crate) name: Arc<str>,
    pub(crate) counts: Arc<ModelCounts>,
}

/// A queue to be made: for one model, or for models that share a trunk.
#[derive(Debug)]
pub(crate) struct NewQueue {
    /// By id.
    pub(crate) members: Vec<Member>,
    pub(crate) ordinal: u32,
    pub(crate) config: Box<ModelQueueConfig>,
    /// What their batches take, by class of GPUs; empty for a model without a family.
    pub(crate) families: Vec<(GpuClass, FamilyProfile)>,
}

/// A number for each time that a GPU came into use, unique over all links and boots of its backend. Messages about an
/// older seal are stale: the plans of a new seal count from 1 again.
pub(crate) type SealNumber = u64;

/// A plan of a GPU, or its reserved number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PlanId {
    pub(crate) gpu: u32,
    pub(crate) seal: SealNumber,
    pub(crate) sequence: u64,
}

/// One link of one boot of a frontend. Different tasks report the end of a link and the beginning of the next,
/// possibly in the wrong order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) frontend: FrontendId,
    pub(crate) boot: BootId,
    pub(crate) link: u64,
}

/// The route of a GPU's plans.
#[derive(Clone, Debug)]
pub(crate) struct GpuRoute {
    pub(crate) gpu: GpuId,
    pub(crate) class: GpuClass,
    pub(crate) seal: SealNumber,
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
    /// The GPU is sealed and in use: it may be granted from `free_at` on, and its plans count from 1 again.
    GpuReady { gpu: u32, class: GpuClass, seal: SealNumber, free_at: Time },
    /// The GPU takes no more plans under this seal.
    Lost { gpu: u32, seal: SealNumber },
    /// A plan is done; everything accepted before is done at `free_at`. `more` if that is at least one plan.
    Done { plan: PlanId, free_at: Time, more: bool },
    /// A plan had its turn and did not run.
    Refused { plan: PlanId },
    /// The arrivals and losses of a worker's models since its last account.
    Account(Box<Account>),
    /// Keep whole GPUs idle.
    Consolidate,
    /// The model has left.
    Forget { ordinal: u32 },
    /// Stop granting the GPU; `round` is sent to `done` once no plan can follow those already sent.
    Retire { gpu: u32, seal: SealNumber, round: u64, done: UnboundedSender<u64> },
    /// The retired GPU may be granted again.
    Resume { gpu: u32, seal: SealNumber },
    /// The GPU is too slow to be granted (`out`), or has recovered.
    Quarantine { gpu: u32, out: bool },
}
