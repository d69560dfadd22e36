//! The configuration of a replica of the top-level group.

use std::time::Duration;

use symphony_consensus::GroupConfig;
use symphony_transport::{CONTROL_CALL_TIMEOUT, ControlClient};

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

impl ClusterAccess {
    /// How long one replica may take of a call for which there is this much time.
    pub(crate) fn each_within(&self, within: Duration) -> Duration {
        each_within(self.addrs.len(), within)
    }
}

/// As many replicas as make a quorum can be asked in that time, one after the other: where half of those configured
/// hang, or fewer, another one is asked.
fn each_within(replicas: usize, within: Duration) -> Duration {
    let quorum = replicas / 2 + 1;
    CONTROL_CALL_TIMEOUT.min(within / quorum as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_that_hang_leave_as_much_time_for_one_that_answers() {
        // Of a poll where a silent cluster counts as lost after 3 s, of a request to a cluster, and of a slow poll.
        for within in [Duration::from_millis(1500), Duration::from_secs(2), Duration::from_secs(5)] {
            assert_eq!(each_within(1, within), CONTROL_CALL_TIMEOUT.min(within), "no other one can answer");
            for replicas in 1..=7_usize {
                let (each, hang) = (each_within(replicas, within), replicas as u32 / 2);
                assert!(each * (hang + 1) <= within, "{hang} of {replicas} hang, within {within:?}");
            }
        }
    }
}
