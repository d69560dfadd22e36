//! Requests and plans at the level of the protocol: the production frames and the production fence (`GpuFence`) on the
//! simulated network, steered by the views of the production control plane. Leads and frontends are modelled here
//! without queues and ranker, which run on threads of their own. A policy of a sub-cluster decides here, behind its
//! port.

pub(crate) mod faulty_policy;
pub(crate) mod frontend;
pub(crate) mod gpus;
pub(crate) mod leads;
mod pipelines;
mod plan_link;
mod policy_host;
mod request_table;

use std::time::Duration;

use symphony_types::{BootId, GpuId, NodeId, Token};

/// How long a plan of one request runs.
pub(crate) const PLAN_TAKES: Duration = Duration::from_millis(3);
/// From asking to the deadline.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);
/// Pause before an unreachable process is dialled again.
pub(crate) const DIAL_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The leader that a GPU obeyed: a promise, or a plan that it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Obeyed {
    pub(crate) gpu: GpuId,
    pub(crate) token: Token,
    /// Whose plan; none for a promise.
    pub(crate) leader: Option<(NodeId, BootId)>,
}
