//! The targets of faults by role, and which processes have that role now.

use rand::seq::IndexedRandom as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Deserialize;
use symphony_protocol::view::View;
use symphony_types::NodeId;

use crate::cluster::{Process, Processes};

/// The target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FaultTarget {
    /// The replica that leads a sub-cluster, drawn from those that do.
    SubclusterLeader,
    /// The leader of the control group.
    RaftLeader,
    /// A replica that does not lead the control group.
    RaftFollower,
    /// A replica, drawn.
    Replica,
    /// Every replica.
    EachReplica,
    /// Every replica that leads no sub-cluster.
    IdleReplicas,
    /// A backend, drawn.
    Backend,
    /// Every backend.
    EachBackend,
    /// A frontend, drawn.
    Frontend,
    /// Every frontend.
    EachFrontend,
}

/// The other ends of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Peers {
    /// All replicas.
    Replicas,
    /// All backends.
    Backends,
    /// One backend of a sub-cluster that the struck replica leads, or else any.
    OneBackend,
    /// All frontends.
    Frontends,
    /// All processes that the same fault does not hit.
    Everybody,
}

/// The replicas that lead sub-clusters, each once.
pub(crate) fn leaders(view: &View) -> Vec<NodeId> {
    let mut nodes: Vec<_> = view.subclusters.values().filter_map(|s| Some(s.leader?.0)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

impl FaultTarget {
    /// Whether that is always a replica, or several.
    pub(crate) const fn is_replica(self) -> bool {
        match self {
            Self::SubclusterLeader
            | Self::RaftLeader
            | Self::RaftFollower
            | Self::Replica
            | Self::EachReplica
            | Self::IdleReplicas => true,
            Self::Backend | Self::EachBackend | Self::Frontend | Self::EachFrontend => false,
        }
    }

    /// The processes that it is now; none if no process has the role.
    pub(crate) fn resolve(self, view: &View, all: &Processes, random: &mut Xoshiro256PlusPlus) -> Vec<Process> {
        let replica = |node: NodeId| Process::Replica(node.get());
        let mut one = |of: Vec<Process>| of.choose(random).copied().into_iter().collect::<Vec<_>>();
        match self {
            Self::SubclusterLeader => one(leaders(view).into_iter().map(replica).collect()),
            Self::RaftLeader => view.control_leader.map(replica).into_iter().collect(),
            Self::RaftFollower => {
                one(all.replicas().filter(|r| Some(*r) != view.control_leader.map(replica)).collect())
            }
            Self::Replica => one(all.replicas().collect()),
            Self::EachReplica => all.replicas().collect(),
            Self::IdleReplicas => {
                let leading: Vec<_> = leaders(view).into_iter().map(replica).collect();
                all.replicas().filter(|replica| !leading.contains(replica)).collect()
            }
            Self::Backend => one(all.backends().collect()),
            Self::EachBackend => all.backends().collect(),
            Self::Frontend => one(all.frontends().collect()),
            Self::EachFrontend => all.frontends().collect(),
        }
    }
}

impl Peers {
    /// The processes, without `of` itself.
    pub(crate) fn resolve(
        self,
        of: Process,
        view: &View,
        all: &Processes,
        random: &mut Xoshiro256PlusPlus,
    ) -> Vec<Process> {
        let peers: Vec<_> = match self {
            Self::Replicas => all.replicas().collect(),
            Self::Backends => all.backends().collect(),
            Self::Frontends => all.frontends().collect(),
            Self::Everybody => all.all().collect(),
            Self::OneBackend => {
                let led = |s: &&symphony_protocol::view::SubclusterView| {
                    s.leader.is_some_and(|(node, _)| Process::Replica(node.get()) == of)
                };
                let led: Vec<_> = view.subclusters.values().filter(led).map(|s| s.name.clone()).collect();
                let mine: Vec<_> = all.backends().filter(|b| led.contains(&all.subcluster_of(*b))).collect();
                let from = if mine.is_empty() { all.backends().collect() } else { mine };
                from.choose(random).copied().into_iter().collect()
            }
        };
        peers.into_iter().filter(|peer| *peer != of).collect()
    }
}
