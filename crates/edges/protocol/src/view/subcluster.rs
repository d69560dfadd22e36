//! A sub-cluster in a view: its leader, and the possible next ones.

use symphony_types::{BootId, NodeId, Token};

use super::{AdviceView, LoadView};

/// A sub-cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubclusterView {
    /// Its name.
    pub name: String,
    /// The replica that leads it, and its boot id at the assignment.
    pub leader: Option<(NodeId, BootId)>,
    /// Log index of that assignment.
    pub token: Token,
    /// The replicas that may lead next.
    pub standbys: Vec<NodeId>,
    /// The replica that prepares to lead, in a planned hand-over that has begun.
    pub successor: Option<SuccessorView>,
    /// How many GPUs it should have; in linearizable answers only, once its lead has reported.
    pub advice: Option<AdviceView>,
    /// What its lead has had to do; in linearizable answers only, once that has reported.
    pub load: Option<LoadView>,
}

/// The replica that prepares to lead a sub-cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuccessorView {
    /// The replica.
    pub node: NodeId,
    /// Its boot id.
    pub boot: BootId,
    /// Log index at which the hand-over began.
    pub since: u64,
}
