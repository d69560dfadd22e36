//! The configuration of a replica's control plane.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use symphony_consensus::{Engine, Environment, OnDiskError};
use symphony_net::Net;
use symphony_scheduler::PolicyRegistry;
use symphony_types::{BootId, Nanos, NodeId};

use crate::planning::EpochSettings;

/// The configuration of one replica.
#[derive(Clone, Debug)]
pub struct ControlPlaneConfig {
    /// The cluster's name; processes of other clusters are refused.
    pub cluster: String,
    /// This replica.
    pub node: NodeId,
    /// The boot id of this process.
    pub boot: BootId,
    /// All replicas with their addresses, this one included: the first voters.
    pub replicas: BTreeMap<NodeId, ReplicaAddrs>,
    /// `host:port` where this replica takes requests for the sub-clusters it leads.
    pub dispatch_addr: String,
    /// Directory of log and snapshots.
    pub data_dir: PathBuf,
    /// Timeouts of elections and failure detection.
    pub timing: Timing,
    /// The storage engine of the log.
    pub engine: Engine,
    /// What to do when the disk fails.
    pub on_disk_error: OnDiskError,
    /// Where the replica runs.
    pub environment: Environment,
    /// The network to other replicas, and the admission of callers.
    pub net: Net,
    /// Whether this replica joins an existing group (`symphony members add`). If so it never founds one.
    pub join: bool,
    /// How and when to look for a better partition plan.
    pub epochs: EpochSettings,
    /// Delays of every request besides its batch, by the configuration: operators are warned of a model whose SLO is
    /// too short for them, and each stage of a pipeline is given them.
    pub request_delays: Nanos,
    /// Time stamps of operations and log entries, for people; no decision depends on them.
    pub wall_clock: WallClock,
    /// The policies for whole sub-clusters that this program adds.
    pub policies: PolicyRegistry,
}

/// Milliseconds since 1970.
pub type WallClock = fn() -> u64;

/// The machine's clock.
#[must_use]
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The addresses of a replica, as `host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaAddrs {
    /// Its control port: Raft and `symphony.v1.Control`.
    pub control: String,
    /// Its heartbeat port, used while it leads the control group.
    pub heartbeat: String,
}

/// Timeouts of elections and failure detection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Elections and replication.
    pub group: symphony_consensus::Timing,
    /// Failure detection among the replicas.
    pub liveness: Liveness,
}

/// Failure detection among the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// Interval of a replica's heartbeats to the Raft leader.
    pub heartbeat: Duration,
    /// Silence after which the Raft leader declares a replica down: at least four heartbeats.
    pub suspicion: Duration,
    /// A detector that wakes up later than this discards its suspicions: it was paused, not the others.
    pub late: Duration,
    /// How long a new Raft leader waits for a first heartbeat from the old one, whose silence caused the election: two
    /// heartbeats and the time to dial.
    pub old_leader_grace: Duration,
    /// Limit for connecting to the heartbeat port, and for the first handshake; each handshake that is given up doubles
    /// the limit of the next, up to [`Self::answer`].
    pub dial: Duration,
    /// How long a replica leads sub-clusters without contact to a Raft leader with a quorum. More than two worst-case
    /// elections, and at least a second: an election must not interrupt serving.
    pub unconfirmed_max: Duration,
}

/// The least [`Liveness::unconfirmed_max`].
const UNCONFIRMED_MIN: Duration = Duration::from_secs(1);

impl Liveness {
    /// For one data centre with cores to spare (`research`: detection within 50 ms gives take-over within 120 ms).
    pub const LAN: Self = Self {
        heartbeat: Duration::from_millis(10),
        suspicion: Duration::from_millis(50),
        late: Duration::from_millis(20),
        old_leader_grace: Duration::from_millis(30),
        dial: Duration::from_millis(20),
        unconfirmed_max: Duration::from_millis(1_000),
    };

    /// For shared or small machines, whose pauses must not be taken for failures.
    pub const RELAXED: Self = Self {
        heartbeat: Duration::from_millis(20),
        suspicion: Duration::from_millis(250),
        late: Duration::from_millis(100),
        old_leader_grace: Duration::from_millis(150),
        dial: Duration::from_millis(100),
        unconfirmed_max: Duration::from_millis(2_000),
    };

    /// Limit for the round trip of a heartbeat and its acknowledgement: four times the suspicion timeout. On a slower
    /// connection the sender dials again, and late heartbeats do not count as signs of life.
    #[must_use]
    pub const fn answer(&self) -> Duration {
        self.suspicion.saturating_mul(4)
    }
}

impl Timing {
    /// For one data centre with cores to spare: take-over in a fraction of a second.
    #[must_use]
    pub const fn lan() -> Self {
        Self { group: symphony_consensus::Timing::lan(), liveness: Liveness::LAN }
    }

    /// For shared or small machines, whose pauses must not be taken for failures.
    #[must_use]
    pub const fn relaxed() -> Self {
        Self { group: symphony_consensus::Timing::relaxed(), liveness: Liveness::RELAXED }
    }
}

impl ControlPlaneConfig {
    /// Checks what the control group does not check itself.
    pub(crate) fn validate(&self) -> Result<(), String> {
        if self.node.get() == 0 || self.boot.get() == 0 {
            return Err(format!("node is {} and boot {}; both must not be 0", self.node.get(), self.boot.get()));
        }
        if !self.replicas.contains_key(&self.node) {
            return Err(format!("{} is not among the {} replicas", self.node, self.replicas.len()));
        }
        if self.join && self.replicas.len() == 1 {
            return Err(format!("{} is to join, and no other replica is configured that it could ask", self.node));
        }
        let Liveness { heartbeat, suspicion, unconfirmed_max, .. } = self.timing.liveness;
        let elections = self.timing.group.election_max * 2 * 2;
        if unconfirmed_max < UNCONFIRMED_MIN.max(elections) {
            return Err(format!(
                "liveness: unconfirmed_max ({unconfirmed_max:?}) must be at least {UNCONFIRMED_MIN:?} and two worst elections ({elections:?})"
            ));
        }
        if heartbeat.is_zero() || suspicion < heartbeat * 4 {
            return Err(format!(
                "liveness: suspicion ({suspicion:?}) must be at least four heartbeats ({heartbeat:?} each)"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let addrs = ReplicaAddrs { control: "a:1".into(), heartbeat: "a:2".into() };
        let config = ControlPlaneConfig {
            cluster: "test".into(),
            node: NodeId::new(1),
            boot: BootId::new(7),
            replicas: [(NodeId::new(1), addrs)].into(),
            dispatch_addr: "a:3".into(),
            data_dir: "data".into(),
            timing: Timing::lan(),
            engine: Engine::Memory,
            on_disk_error: OnDiskError::Stop,
            environment: Environment::Machine,
            net: Net::plaintext(),
            join: false,
            epochs: EpochSettings::default(),
            request_delays: Nanos::ZERO,
            wall_clock: unix_ms,
            policies: symphony_scheduler::PolicyRegistry::new(),
        };
        assert_eq!(config.validate(), Ok(()));
        let relaxed = ControlPlaneConfig { timing: Timing::relaxed(), ..config.clone() };
        assert_eq!(relaxed.validate(), Ok(()));
        let stranger = ControlPlaneConfig { node: NodeId::new(2), ..config.clone() };
        assert!(stranger.validate().is_err_and(|reason| reason.contains("n2 is not among")));
        let without_boot = ControlPlaneConfig { boot: BootId::new(0), ..config.clone() };
        assert!(without_boot.validate().is_err_and(|reason| reason.contains("must not be 0")));
        let mut hasty = config;
        hasty.timing.liveness.suspicion = Duration::from_millis(39);
        assert!(hasty.validate().is_err_and(|reason| reason.contains("at least four heartbeats")));
        hasty.timing = Timing::lan();
        hasty.timing.liveness.unconfirmed_max = Duration::from_millis(999);
        assert!(hasty.validate().is_err_and(|reason| reason.contains("unconfirmed_max (999ms)")));
    }
}
