//! The configuration of a replica of the top-level group.

use std::time::Duration;

use symphony_consensus::GroupConfig;
use symphony_transport::ControlClient;

use crate::rebalance::BalanceSettings;

/// A replica of the top-level group.
#[derive(Clone, Debug)]
pub struct FederationConfig {
    /// Its membership in the group; the group's cluster name is the federation's.
    pub group: GroupConfig,
    /// The clusters, by name.
    pub clusters: Vec<ClusterAccess>,
    /// How long a cluster may be without an answering quorum before its models are served elsewhere.
    pub unreachable: Duration,
    /// How models are moved for balance.
    pub balance: BalanceSettings,
    /// Milliseconds since 1970.
    pub wall_clock: fn() -> u64,
}

/// Polls within the time after which a cluster counts as lost: no single one that fails makes it so.
const POLLS_PER_LOSS: u32 = 10;
/// However long clusters may be silent, what is known of them is not older.
const POLL_EVERY_MAX: Duration = Duration::from_secs(1);

impl FederationConfig {
    /// How often clusters are polled.
    pub(crate) fn poll_every(&self) -> Duration {
        (self.unreachable / POLLS_PER_LOSS).min(POLL_EVERY_MAX)
    }
}

/// A cluster of the federation.
#[derive(Clone, Debug)]
pub struct ClusterAccess {
    /// The name by which the federation's group knows it.
    pub name: String,
    /// Its control addresses.
    pub addrs: Vec<String>,
    /// A client of its control port, with the federation's certificate.
    pub control: ControlClient,
}
