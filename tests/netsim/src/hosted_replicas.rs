//! Which replica runs on which host: members of the control group, joining ones, and leaving ones.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use symphony_control_plane::{ReplicaAddrs, SimulatedDisk};
use symphony_types::NodeId;

use crate::cluster::{CONTROL_PORT, HEARTBEAT_PORT, HOSTS, VOTERS};

/// How a replica stands with the control group, as its operators want it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupMembership {
    /// It belongs to it.
    Member,
    /// An operator has it removed; it has to notice and end.
    Leaving,
}

/// A replica with all that outlives its processes.
#[derive(Clone, Debug)]
pub(crate) struct HostedReplica {
    pub(crate) id: NodeId,
    pub(crate) disk: SimulatedDisk,
    pub(crate) data_dir: PathBuf,
    /// The replicas of its configuration file.
    pub(crate) configured: BTreeMap<NodeId, ReplicaAddrs>,
    pub(crate) join: bool,
    pub(crate) place: GroupMembership,
    /// Its last words, once its process has ended because it cannot be part of the cluster any more.
    pub(crate) ended: Option<String>,
}

/// All replicas by host. A host without a replica is spare.
#[derive(Debug)]
pub(crate) struct HostedReplicas {
    seed: u64,
    dir: PathBuf,
    barrier_max: Duration,
    next: u64,
    /// Writes lost on disks that are gone.
    lost: u64,
    replicas: BTreeMap<&'static str, HostedReplica>,
}

impl HostedReplicas {
    pub(crate) fn new(seed: u64, dir: PathBuf, barrier_max: Duration) -> Self {
        let mut this = Self { seed, dir, barrier_max, next: 1, lost: 0, replicas: BTreeMap::new() };
        for host in HOSTS.into_iter().take(VOTERS) {
            this.install(host);
        }
        let founders: BTreeMap<_, _> = this.replicas.iter().map(|(host, hosted)| (hosted.id, addrs(host))).collect();
        for hosted in this.replicas.values_mut() {
            (hosted.configured, hosted.join) = (founders.clone(), false);
        }
        this
    }

    /// A fresh replica on a spare host, which comes to a group that exists.
    pub(crate) fn install(&mut self, host: &'static str) -> NodeId {
        let id = NodeId::new(self.next);
        self.next += 1;
        let mut configured: BTreeMap<_, _> = self.members().map(|(host, hosted)| (hosted.id, addrs(host))).collect();
        configured.insert(id, addrs(host));
        let (disk, data_dir) = self.fresh_disk(id.get());
        let place = GroupMembership::Member;
        self.replicas.insert(host, HostedReplica { id, disk, data_dir, configured, join: true, place, ended: None });
        id
    }

    /// Empties the disk of a host.
    pub(crate) fn wipe(&mut self, host: &str) {
        self.next += 1;
        let (disk, data_dir) = self.fresh_disk(self.next - 1);
        if let Some(hosted) = self.replicas.get_mut(host) {
            self.lost += hosted.disk.lost();
            (hosted.disk, hosted.data_dir) = (disk, data_dir);
        }
    }

    /// Puts another disk into a host.
    pub(crate) fn put_back(&mut self, host: &str, disk: SimulatedDisk) {
        if let Some(hosted) = self.replicas.get_mut(host) {
            self.lost += hosted.disk.lost();
            hosted.disk = disk;
        }
    }

    fn fresh_disk(&self, number: u64) -> (SimulatedDisk, PathBuf) {
        let disk = SimulatedDisk::new(self.seed.wrapping_mul(31).wrapping_add(number), self.barrier_max);
        (disk, self.dir.join(number.to_string()))
    }

    /// Its host is spare from now on.
    pub(crate) fn free_host(&mut self, host: &str) {
        if let Some(hosted) = self.replicas.remove(host) {
            self.lost += hosted.disk.lost();
        }
    }

    pub(crate) fn get(&self, host: &str) -> Option<&HostedReplica> {
        self.replicas.get(host)
    }

    pub(crate) fn get_mut(&mut self, host: &str) -> Option<&mut HostedReplica> {
        self.replicas.get_mut(host)
    }

    /// The members that the operators want.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&'static str, &HostedReplica)> {
        self.replicas
            .iter()
            .filter(|(_, hosted)| hosted.place == GroupMembership::Member)
            .map(|(&host, hosted)| (host, hosted))
    }

    /// Removed replicas that still run.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = (&'static str, &HostedReplica)> {
        self.replicas
            .iter()
            .filter(|(_, hosted)| hosted.place == GroupMembership::Leaving)
            .map(|(&host, hosted)| (host, hosted))
    }

    /// A host without a replica.
    pub(crate) fn spare(&self) -> Option<&'static str> {
        HOSTS.into_iter().find(|host| !self.replicas.contains_key(host))
    }

    /// Disks that hold a vote of this term or a later one.
    pub(crate) fn durable_votes(&self, term: u64) -> usize {
        self.replicas
            .values()
            .filter(|hosted| hosted.disk.durable_term().is_some_and(|durable| durable >= term))
            .count()
    }

    /// Writes that power losses have cost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost + self.replicas.values().map(|hosted| hosted.disk.lost()).sum::<u64>()
    }

    /// Makes every disk report a write as durable before it is.
    pub(crate) fn make_disks_lie(&mut self) {
        for hosted in self.replicas.values_mut() {
            hosted.disk = hosted.disk.clone().lying();
        }
    }
}

/// Where a host is reached.
pub(crate) fn addrs(host: &str) -> ReplicaAddrs {
    ReplicaAddrs { control: format!("{host}:{CONTROL_PORT}"), heartbeat: format!("{host}:{HEARTBEAT_PORT}") }
}
