//! The configuration of a replica.

use std::collections::BTreeMap;
use std::path::PathBuf;

use symphony_net::Net;
use symphony_types::NodeId;

use crate::compaction::SnapshotEvery;
use crate::environment::Environment;
use crate::fault::OnDiskError;
use crate::limits::{ADDRESS_BYTES_MAX, NAME_BYTES_MAX, NODES_MAX};
use crate::timing::Timing;

/// Which storage engine holds the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Engine {
    /// sled 0.34 with the measures of docs/adr/0002.
    #[default]
    Sled,
    /// redb 4, committing in one phase (docs/adr/0012).
    Redb,
    /// In memory: everything is lost at the end. For tests and simulations only; snapshots still go to files.
    Memory,
}

impl Engine {
    /// Its name, as in configurations and on disks.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sled => "sled",
            Self::Redb => "redb",
            Self::Memory => "memory",
        }
    }
}

/// One replica of a control group.
#[derive(Debug, Clone)]
pub struct GroupConfig {
    /// The cluster's name; replicas of other clusters, and their disks, are refused.
    pub cluster: String,
    /// This replica; never reused, and never the id of a replica that lost its disk.
    pub node: NodeId,
    /// The first voters and the address (host:port) of their control gRPC. Used only to found a group whose logs are
    /// empty; afterwards the log says who votes. Empty for a replica that will be added to a running group.
    pub voters: BTreeMap<NodeId, String>,
    /// Directory of the log and the snapshots; created if missing, for this node alone.
    pub data_dir: PathBuf,
    /// The storage engine of the log.
    pub engine: Engine,
    /// Raft timeouts.
    pub timing: Timing,
    /// How often the log is compacted into a snapshot.
    pub snapshot: SnapshotEvery,
    /// What to do when the disk fails.
    pub on_disk_error: OnDiskError,
    /// Where the replica runs.
    pub environment: Environment,
    /// The network to the other replicas.
    pub net: Net,
}

impl GroupConfig {
    /// A replica on sled with [`LAN`](crate::LAN) timing, in plaintext.
    #[must_use]
    pub fn new(cluster: impl Into<String>, node: NodeId, voters: BTreeMap<NodeId, String>, data_dir: PathBuf) -> Self {
        Self {
            cluster: cluster.into(),
            node,
            voters,
            data_dir,
            engine: Engine::default(),
            timing: Timing::lan(),
            snapshot: SnapshotEvery::default(),
            on_disk_error: OnDiskError::default(),
            environment: Environment::default(),
            net: Net::plaintext(),
        }
    }

    /// Checks everything that needs neither disk nor network.
    ///
    /// # Errors
    /// Names the field, its value and what was expected.
    pub fn validate(&self) -> Result<(), String> {
        let name = self.cluster.len();
        if name == 0 || name > NAME_BYTES_MAX {
            return Err(format!("cluster has a name of {name} bytes, expected 1 to {NAME_BYTES_MAX}"));
        }
        if self.voters.len() > NODES_MAX {
            return Err(format!("voters has {} members, expected at most {NODES_MAX}", self.voters.len()));
        }
        for (node, address) in &self.voters {
            validate_address(address).map_err(|reason| format!("voters: address of {node} {reason}"))?;
        }
        if self.snapshot.entries == 0 {
            return Err("snapshot.entries is 0, expected at least 1".to_owned());
        }
        self.timing.validate().map_err(|reason| format!("timing: {reason}"))
    }
}

/// Checks that an address is `host:port`.
pub(crate) fn validate_address(address: &str) -> Result<(), String> {
    if address.len() > ADDRESS_BYTES_MAX {
        return Err(format!("has {} bytes, expected at most {ADDRESS_BYTES_MAX}", address.len()));
    }
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0) => Ok(()),
        _ => Err(format!("is \"{address}\", expected host:port")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> GroupConfig {
        let voters = (1..=3).map(|id| (NodeId::new(id), format!("10.0.0.{id}:7000"))).collect();
        GroupConfig::new("blue", NodeId::new(1), voters, PathBuf::from("data"))
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(config().validate(), Ok(()));
        let nameless = GroupConfig { cluster: String::new(), ..config() };
        assert!(nameless.validate().is_err_and(|reason| reason.starts_with("cluster")));
        for address in ["10.0.0.9", ":7000", "host:0", "host:99999"] {
            let voters = BTreeMap::from([(NodeId::new(9), address.to_owned())]);
            let lost = GroupConfig { voters, ..config() };
            assert!(lost.validate().is_err_and(|reason| reason.contains(address)), "{address}");
        }
    }
}
