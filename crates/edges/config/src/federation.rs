//! `[federation]`: several clusters under one top-level group. Used by replicas of that group, and by frontends that
//! serve the models of all clusters; `[cluster]` then only names the federation, and `[security]` holds their
//! certificates there.

use std::path::PathBuf;

use symphony_types::NodeId;

use crate::{Address, EpochMode, LogEngine};

/// The federation that a node belongs to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FederationConfig {
    /// Which replica of the top-level group this is. Replicas only.
    pub id: NodeId,
    /// Directory of the log and the snapshots. Replicas only.
    pub data_dir: PathBuf,
    /// What holds the log. Replicas only.
    pub log_engine: LogEngine,
    /// Where it serves metrics and health. Replicas only.
    pub metrics: Address,
    /// How long no quorum of a cluster may answer until its models are served elsewhere, in milliseconds. Replicas
    /// only.
    pub unreachable_ms: u64,
    /// How models are moved between clusters for balance. Replicas only.
    pub balance: FederationBalanceConfig,
    /// All replicas of the top-level group: 1, 3, 5 or 7.
    pub replica: Vec<FederationReplicaConfig>,
    /// The clusters of the federation, each once.
    pub clusters: Vec<FederatedClusterConfig>,
}

/// How and when a more even division of the models over the clusters is looked for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FederationBalanceConfig {
    /// What to do with a more even division.
    pub mode: EpochMode,
    /// From one search to the next when nothing happens, in seconds.
    pub period_s: u64,
    /// MB of models that one division may move, of 2^20 bytes; 0 for any.
    pub moved_mb_max: u64,
}

impl Default for FederationBalanceConfig {
    /// The defaults.
    fn default() -> Self {
        let defaults = crate::defaults::defaults();
        let own = defaults.get("federation").and_then(|federation| federation.get("balance"));
        own.cloned().expect("the defaults have this section").try_into().expect("and every key of it")
    }
}

/// One replica of the top-level group, as other processes see it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FederationReplicaConfig {
    /// Its id, not 0, never given to another replica.
    pub id: NodeId,
    /// Where it takes calls: Raft, frontends, operators.
    pub control: Address,
}

/// One cluster, as this node reaches it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FederatedClusterConfig {
    /// Its name, as in the `cluster.name` of its nodes.
    pub name: String,
    /// Where its scheduler replicas take control calls.
    pub control: Vec<Address>,
    /// Where its backends pull inputs from this frontend. Frontends only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Address>,
    /// Certificates of its authorities, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// This node's certificate in that cluster, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// Its key, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

impl FederationConfig {
    /// Finds a replica of the federation's group by its id.
    #[must_use]
    pub fn replica(&self, id: NodeId) -> Option<&FederationReplicaConfig> {
        self.replica.iter().find(|replica| replica.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_propose_and_begin_nothing() {
        let balance = FederationBalanceConfig::default();
        assert_eq!((balance.mode, balance.period_s, balance.moved_mb_max), (EpochMode::Propose, 300, 0));
    }
}
