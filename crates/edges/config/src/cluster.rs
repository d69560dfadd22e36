//! `[cluster]`: the scheduler replicas and their addresses. Equal in the files of all nodes of a cluster.

use symphony_types::NodeId;

use crate::Address;

/// The cluster a node belongs to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// Its name, so that a node that dials the wrong cluster is turned away.
    pub name: String,
    /// How patient elections and failure detection are.
    pub timing: Timing,
    /// All scheduler replicas: 1, 3, 5 or 7.
    pub scheduler: Vec<ReplicaConfig>,
}

/// One scheduler replica, as other processes see it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaConfig {
    /// Its id, not 0, never given to another replica.
    pub id: NodeId,
    /// Where it takes control calls: Raft, registration, views, operators.
    pub control: Address,
    /// Where it takes requests for the sub-clusters it leads.
    pub dispatch: Address,
    /// Its heartbeat port.
    pub beat: Address,
}

/// How patient elections and failure detection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Timing {
    /// A data centre network and cores to spare: take-over in a fraction of a second.
    Lan,
    /// Shared or small machines, whose pauses must not be taken for failures: take-over takes seconds.
    Relaxed,
}

impl ClusterConfig {
    /// Finds a replica by its id.
    #[must_use]
    pub fn replica(&self, id: NodeId) -> Option<&ReplicaConfig> {
        self.scheduler.iter().find(|replica| replica.id == id)
    }
}

impl ReplicaConfig {
    /// Its addresses with their keys.
    #[must_use]
    pub fn addresses(&self) -> [(&'static str, &Address); 3] {
        [("control", &self.control), ("dispatch", &self.dispatch), ("beat", &self.beat)]
    }
}
