//! The dispatch link: frontend ⇄ the leader of a sub-cluster. Ids and budgets only, never inputs.

#![allow(missing_docs, reason = "the derive writes archived twins of the enums without documentation")]

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{BootId, DropReason, FailReason, FrontendId, SubclusterId, Token};

use crate::Message;

/// The most request headers in one frame; a longer list is sent as several.
pub const ANNOUNCED_REQUESTS_MAX: usize = 4096;

/// A request as it travels to the scheduler.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Counts the requests of the frontend's boot.
    pub sequence: u64,
    /// Number of the model ([`ModelId`](symphony_types::ModelId)) that the frontend resolved the client's name to.
    pub model: u32,
    /// Items, at least one.
    pub items: u32,
    /// Nanoseconds left until its deadline when the frame was written. Durations travel, points in time do not.
    pub budget: u64,
    /// 1 for a new request, larger when it is announced again to a new leader.
    pub attempt: u32,
    /// What it is worth relative to its model's other requests when some must be shed, in thousandths.
    pub weight: u32,
}

/// Frontend → leader.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum ToLeader {
    /// First on every connection.
    Hello {
        /// The frontend that connects, by its registered id.
        frontend: FrontendId,
        /// The frontend's boot: its requests are counted from there, and answers to an earlier boot are dropped.
        boot: BootId,
        /// For which sub-cluster.
        subcluster: SubclusterId,
        /// Under which token; a leader that does not hold it (yet) refuses.
        token: Token,
    },
    /// New requests.
    Announce {
        /// The token the frontend routes by (invariant C5).
        token: Token,
        /// Headers of the requests, at most [`ANNOUNCED_REQUESTS_MAX`].
        requests: Vec<RequestHeader>,
    },
    /// Unanswered requests, announced again to a new leader, earliest deadline first.
    Redrive {
        /// The new leader's token.
        token: Token,
        /// Headers of the requests, at most [`ANNOUNCED_REQUESTS_MAX`].
        requests: Vec<RequestHeader>,
        /// No more follow.
        last: bool,
    },
    /// The clients of these requests have gone away.
    Cancel {
        /// Sequence number and model of each.
        requests: Vec<(u64, u32)>,
    },
}

/// Leader → frontend.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum ToFrontend {
    /// The connection is accepted.
    Welcome {
        /// The leader's token.
        token: Token,
    },
    /// The connection is refused: this node does not lead the sub-cluster under that token.
    NotLeader {
        /// The highest token this node knows for the sub-cluster.
        token: Token,
    },
    /// The connection is refused: this node has had no contact with the control group for too long to lead, or to know
    /// the leader.
    Suspended,
    /// These requests have their outcome.
    Ended {
        /// Sequence number and reason of each.
        requests: Vec<(u64, EndReason)>,
    },
    /// A decision of this lead panicked. The frontend announces its requests without an outcome to the next leader,
    /// except those that were with a panicked lead before. Nothing follows.
    Panicked,
}

/// Why the scheduler ended a request.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Given up by the policy.
    Dropped(DropReason),
    /// Could not be served.
    Failed(FailReason),
}

impl Message for ToLeader {
    const LINK: u16 = 1;
    const NAME: &str = "dispatch";
}

impl Message for ToFrontend {
    const LINK: u16 = 2;
    const NAME: &str = "dispatch";
}
