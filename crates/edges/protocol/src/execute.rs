//! The execute link: leader of a sub-cluster ⇄ backend. Fencing is here (docs/concepts/take-over.md).

#![allow(missing_docs, reason = "the derive writes archived twins of the enums without documentation")]

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{BackendId, BootId, FailReason, GpuId, ModelId, NodeId, RequestId, SubclusterId, Token};

use crate::Message;

/// Requests that finished recently are named in the answer to a seal, up to this many, so that a new leader does not
/// run them again.
pub const SEAL_RECENT_REQUESTS_MAX: usize = 16_384;

/// Plans that ended recently are reported in the answer to a seal, up to this many, so that a new leader knows how
/// late plans end here.
pub const SEAL_RECENT_PLANS_MAX: usize = 128;

/// A request inside a batch plan.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRequest {
    /// The request: identifies its input, and the frontend that gets the answer.
    pub id: RequestId,
    /// Its items, at least one, all of them in the batch.
    pub items: u32,
    /// Its model, if that is another one than the plan's: both share a trunk, which runs once for all. 0 for the plan's
    /// own, as in frames of releases before level 3, which have zeros here.
    pub model: ModelId,
}

impl PlannedRequest {
    /// The model that it runs through, in a plan of this model.
    #[must_use]
    pub const fn model_in(&self, plan: ModelId) -> ModelId {
        if self.model.get() == 0 { plan } else { self.model }
    }
}

/// A model whose batches a backend runs through a trunk that it shares with other models.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostedModel {
    /// The model that is served through the trunk.
    pub model: ModelId,
    /// The largest part of a batch's time that its trunk takes, at one row and at the largest batch, in millionths.
    pub trunk_share: u32,
    /// The same of its suffix.
    pub suffix_share: u32,
    /// The digest of the trunk, its first byte first.
    pub trunk: [u8; 16],
}

/// The order to run a batch.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Execute {
    /// Where.
    pub gpu: GpuId,
    /// The GPU's token as the leader holds it; must equal what the backend promised.
    pub token: Token,
    /// The boot id of the backend that the leader sealed.
    pub backend_boot: BootId,
    /// Counts the plans of this token on this GPU, from 1; must be the next one.
    pub sequence: u64,
    /// Nanoseconds from the writing of the frame to the planned start.
    pub start_in: u64,
    /// Predicted execution time in nanoseconds.
    pub latency: u64,
    /// The model of the batch; single requests may name another one of its family.
    pub model: ModelId,
    /// Which requests, earliest deadline first.
    pub requests: Vec<PlannedRequest>,
}

/// Leader → backend.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum ToBackend {
    /// First on every connection.
    Hello {
        /// The scheduler replica.
        node: NodeId,
        /// The boot in which the replica got its leads.
        boot: BootId,
    },
    /// Promise these tokens, refuse every lower one from now on, and report what is running.
    Seal {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// GPU and token each.
        gpus: Vec<(GpuId, Token)>,
    },
    /// Run a batch.
    Execute(Execute),
    /// No more plans come for these GPUs, which are to take nothing new. The next seal takes it back, also the same one
    /// again; so does a plan that still comes.
    Retired {
        /// Ids of these GPUs; one that another connection has sealed since stays in use.
        gpus: Vec<GpuId>,
    },
}

/// A GPU in the answer to a seal.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct SealedGpu {
    /// The GPU to which the promise belongs.
    pub gpu: GpuId,
    /// The token now promised: the one asked for, or a higher one, which refuses the seal.
    pub promised: Token,
    /// Nanoseconds until everything accepted so far is done.
    pub free_in: u64,
    /// Requests accepted and not finished.
    pub in_flight: Vec<RequestId>,
}

/// How long a plan took beside its prediction, in the answer to a seal. All times in nanoseconds.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedPlan {
    /// By how much longer than predicted; zero if it was faster.
    pub longer: u64,
    /// Predicted execution time.
    pub predicted: u64,
}

/// Why a backend refused a plan.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The GPU has promised a higher token: the sender leads no longer.
    Fenced {
        /// The promise.
        promised: Token,
    },
    /// The GPU has not promised this token yet.
    NeedSeal {
        /// The promise.
        promised: Token,
    },
    /// The backend has restarted since it was sealed.
    WrongBoot {
        /// The boot in which the backend runs now.
        boot: BootId,
    },
    /// A plan before this one is missing.
    OutOfSequence {
        /// The sequence number expected.
        expected: u64,
    },
    /// The GPU's queue of plans is at its limit.
    QueueFull,
    /// No such GPU here.
    UnknownGpu,
    /// The model is not loaded here.
    ModelNotReady,
}

/// How a plan went. All times in nanoseconds.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The GPU that ran the plan.
    pub gpu: GpuId,
    /// The token of the plan.
    pub token: Token,
    /// The plan.
    pub sequence: u64,
    /// The model of the plan.
    pub model: ModelId,
    /// How much later than planned it started.
    pub start_late: u64,
    /// How long it really took.
    pub latency: u64,
    /// From now until everything accepted so far is done.
    pub free_in: u64,
    /// Requests that did not run, with their reasons; their frontends were notified.
    pub failed: Vec<(RequestId, FailReason)>,
}

/// Backend → leader.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum FromBackend {
    /// First on every connection.
    Welcome {
        /// The backend that answers, by its registered id.
        backend: BackendId,
        /// The boot in which it runs now; a leader that expects another one hangs up.
        boot: BootId,
    },
    /// Answer to a seal.
    Sealed {
        /// The boot that makes the promise.
        boot: BootId,
        /// The GPUs asked about.
        gpus: Vec<SealedGpu>,
        /// Requests finished lately.
        finished: Vec<RequestId>,
        /// Plans that ended lately, of all its GPUs.
        plans: Vec<EndedPlan>,
    },
    /// A plan was not accepted; nothing of it runs.
    Refused {
        /// The GPU for which the plan was.
        gpu: GpuId,
        /// The plan.
        sequence: u64,
        /// The token under which the plan was sent.
        token: Token,
        /// The model of the plan.
        model: ModelId,
        /// The reason for the refusal.
        refusal: Refusal,
    },
    /// A plan is done.
    Done(Done),
    /// How long the inputs of a batch take to come from one frontend, as measured: a line over their bytes that one
    /// batch in a thousand exceeds. After a seal, and when it has changed.
    PayloadDelay {
        /// Nanoseconds, however few bytes they are.
        fixed: u64,
        /// Nanoseconds for each MiB of 2^20 bytes.
        per_mib: u64,
    },
    /// The models that it runs through shared trunks now, on all its GPUs; in place of those that it reported before.
    /// After a seal, and when it has changed. From level 3 on.
    Hosts {
        /// The models, by id.
        models: Vec<HostedModel>,
    },
}

impl Message for ToBackend {
    const LINK: u16 = 3;
    const NAME: &str = "execute";
}

impl Message for FromBackend {
    const LINK: u16 = 4;
    const NAME: &str = "execute";
}
