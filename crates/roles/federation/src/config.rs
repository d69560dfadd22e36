//! What a replica of the top-level group is told.

use std::time::Duration;

use symphony_consensus::GroupConfig;
use symphony_transport::ControlClient;

use crate::rebalance::BalanceSettings;

/// A replica of the top-level group.
#[derive(Clone, Debug)]
pub struct FederationConfig {
    /// Its part in the group; the group's cluster name is the federation's.
    pub group: GroupConfig,
    /// The clusters, by name.
    pub clusters: Vec<ClusterAccess>,
    /// How often clusters are looked at.
    pub look_every: Duration,
    /// How long no quorum of a cluster may answer until its models are served elsewhere.
    pub unreachable: Duration,
    /// How models are moved for balance.
    pub balance: BalanceSettings,
    /// Milliseconds since 1970.
    pub wall_clock: fn() -> u64,
}

/// A cluster of the federation.
#[derive(Clone, Debug)]
pub struct ClusterAccess {
    /// Its name.
    pub name: String,
    /// Its control addresses.
    pub addrs: Vec<String>,
    /// Its control surface, spoken to as the federation that it belongs to.
    pub control: ControlClient,
}
