//! A sub-cluster: who leads it, and who may lead it next.

use symphony_types::{BootId, NodeId, Token};

use super::{AdviceView, LoadView};

/// A sub-cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubclusterView {
    /// Its name.
    pub name: String,
    /// The replica that leads it and the life that was assigned.
    pub leader: Option<(NodeId, BootId)>,
    /// Log index of that assignment.
    pub token: Token,
    /// Who may lead next.
    pub standbys: Vec<NodeId>,
    /// Who gets ready to lead next, by a planned hand-over that has begun.
    pub successor: Option<SuccessorView>,
    /// How many GPUs it should have; in linearizable answers only, once its lead has reported.
    pub advice: Option<AdviceView>,
    /// What its lead has had to do; in linearizable answers only, once that has reported.
    pub load: Option<LoadView>,
}

/// A life of a replica that gets ready to lead a sub-cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuccessorView {
    /// The replica.
    pub node: NodeId,
    /// Its life.
    pub boot: BootId,
    /// Log index at which the hand-over began.
    pub since: u64,
}
