//! A sub-cluster in a view: its leader, and the possible next ones.

use symphony_types::{BootId, Nanos, NodeId, SubclusterId, Token};

use super::{AdviceView, LoadView};
use crate::control as pb;

/// A sub-cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubclusterView {
    /// Its name, given by the first backend that asked for it.
    pub name: String,
    /// The replica that leads it, and its boot id at the assignment.
    pub leader: Option<(NodeId, BootId)>,
    /// Log index of that assignment.
    pub token: Token,
    /// The replicas that may lead next.
    pub standbys: Vec<NodeId>,
    /// The replica that prepares to lead, in a planned hand-over that has begun.
    pub successor: Option<SuccessorView>,
    /// The policy that decides for the whole sub-cluster; none if each model has its own.
    pub policy: Option<PolicyView>,
    /// How many GPUs it should have; in linearizable answers only, once its lead has reported.
    pub advice: Option<AdviceView>,
    /// What its lead has had to do; in linearizable answers only, once that has reported.
    pub load: Option<LoadView>,
}

/// A policy that decides for a whole sub-cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyView {
    /// Its canonical text.
    pub text: String,
    /// How it failed, in words: then each model has its own policy, until one is set again.
    pub failed: Option<String>,
}

impl PolicyView {
    /// The text, with what became of it.
    #[must_use]
    pub fn words(&self) -> String {
        match &self.failed {
            Some(failed) => format!("auto ({} {failed})", self.text),
            None => self.text.clone(),
        }
    }
}

/// The replica that prepares to lead a sub-cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuccessorView {
    /// The replica.
    pub node: NodeId,
    /// The boot that prepares: after a restart the hand-over is over.
    pub boot: BootId,
    /// Log index at which the hand-over began.
    pub since: u64,
}

impl From<pb::Subcluster> for (SubclusterId, SubclusterView) {
    fn from(subcluster: pb::Subcluster) -> Self {
        let pb::Subcluster { id, name, leader, leader_boot_id, token, standbys, policy, policy_failed, .. } =
            subcluster;
        let failed = (!policy_failed.is_empty()).then_some(policy_failed);
        let age = Nanos::new(subcluster.load_age_ns);
        let view = SubclusterView {
            name,
            leader: (leader != 0).then(|| (NodeId::new(leader), BootId::new(leader_boot_id))),
            token: Token::new(token),
            standbys: standbys.into_iter().map(NodeId::new).collect(),
            successor: (subcluster.successor != 0).then(|| SuccessorView {
                node: NodeId::new(subcluster.successor),
                boot: BootId::new(subcluster.successor_boot_id),
                since: subcluster.handover_since,
            }),
            policy: (!policy.is_empty()).then_some(PolicyView { text: policy, failed }),
            advice: subcluster.advice.map(AdviceView::from),
            load: subcluster.load.map(|load| LoadView { age, ..LoadView::from(&load) }),
        };
        (SubclusterId::new(id), view)
    }
}

impl From<(&SubclusterId, &SubclusterView)> for pb::Subcluster {
    fn from((id, subcluster): (&SubclusterId, &SubclusterView)) -> Self {
        let SubclusterView { leader, successor, load, policy, .. } = subcluster;
        Self {
            id: id.get(),
            name: subcluster.name.clone(),
            leader: leader.map_or(0, |(node, _)| node.get()),
            leader_boot_id: leader.map_or(0, |(_, boot)| boot.get()),
            token: subcluster.token.get(),
            standbys: subcluster.standbys.iter().map(|node| node.get()).collect(),
            successor: successor.map_or(0, |next| next.node.get()),
            successor_boot_id: successor.map_or(0, |next| next.boot.get()),
            handover_since: successor.map_or(0, |next| next.since),
            advice: subcluster.advice.as_ref().map(Into::into),
            load: load.as_ref().map(|load| load.message(*id)),
            load_age_ns: load.as_ref().map_or(0, |load| load.age.get()),
            policy: policy.as_ref().map(|policy| policy.text.clone()).unwrap_or_default(),
            policy_failed: policy.as_ref().and_then(|policy| policy.failed.clone()).unwrap_or_default(),
        }
    }
}
