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
pub(crate) struct Seat {
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

/// All replicas by host. A host without a seat is spare.
#[derive(Debug)]
pub(crate) struct Seats {
    seed: u64,
    dir: PathBuf,
    barrier_max: Duration,
    next: u64,
    /// Writes lost on disks that are gone.
    lost: u64,
    seats: BTreeMap<&'static str, Seat>,
}

impl Seats {
    pub(crate) fn new(seed: u64, dir: PathBuf, barrier_max: Duration) -> Self {
        let mut this = Self { seed, dir, barrier_max, next: 1, lost: 0, seats: BTreeMap::new() };
        for host in HOSTS.into_iter().take(VOTERS) {
            this.sit(host);
        }
        let founders: BTreeMap<_, _> = this.seats.iter().map(|(host, seat)| (seat.id, addrs(host))).collect();
        for seat in this.seats.values_mut() {
            (seat.configured, seat.join) = (founders.clone(), false);
        }
        this
    }

    /// A fresh replica on a spare host, which comes to a group that exists.
    pub(crate) fn sit(&mut self, host: &'static str) -> NodeId {
        let id = NodeId::new(self.next);
        self.next += 1;
        let mut configured: BTreeMap<_, _> = self.members().map(|(host, seat)| (seat.id, addrs(host))).collect();
        configured.insert(id, addrs(host));
        let (disk, data_dir) = self.fresh_disk(id.get());
        let place = GroupMembership::Member;
        self.seats.insert(host, Seat { id, disk, data_dir, configured, join: true, place, ended: None });
        id
    }

    /// Empties the disk of a host.
    pub(crate) fn wipe(&mut self, host: &str) {
        self.next += 1;
        let (disk, data_dir) = self.fresh_disk(self.next - 1);
        if let Some(seat) = self.seats.get_mut(host) {
            self.lost += seat.disk.lost();
            (seat.disk, seat.data_dir) = (disk, data_dir);
        }
    }

    /// Puts another disk into a host.
    pub(crate) fn put_back(&mut self, host: &str, disk: SimulatedDisk) {
        if let Some(seat) = self.seats.get_mut(host) {
            self.lost += seat.disk.lost();
            seat.disk = disk;
        }
    }

    fn fresh_disk(&self, number: u64) -> (SimulatedDisk, PathBuf) {
        let disk = SimulatedDisk::new(self.seed.wrapping_mul(31).wrapping_add(number), self.barrier_max);
        (disk, self.dir.join(number.to_string()))
    }

    /// Its host is spare from now on.
    pub(crate) fn leave(&mut self, host: &str) {
        if let Some(seat) = self.seats.remove(host) {
            self.lost += seat.disk.lost();
        }
    }

    pub(crate) fn get(&self, host: &str) -> Option<&Seat> {
        self.seats.get(host)
    }

    pub(crate) fn get_mut(&mut self, host: &str) -> Option<&mut Seat> {
        self.seats.get_mut(host)
    }

    /// The members that the operators want.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&'static str, &Seat)> {
        self.seats.iter().filter(|(_, seat)| seat.place == GroupMembership::Member).map(|(&host, seat)| (host, seat))
    }

    /// Removed replicas that still run.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = (&'static str, &Seat)> {
        self.seats.iter().filter(|(_, seat)| seat.place == GroupMembership::Leaving).map(|(&host, seat)| (host, seat))
    }

    /// A host without a replica.
    pub(crate) fn spare(&self) -> Option<&'static str> {
        HOSTS.into_iter().find(|host| !self.seats.contains_key(host))
    }

    /// Disks that hold a vote of this term or a later one.
    pub(crate) fn durable_votes(&self, term: u64) -> usize {
        self.seats.values().filter(|seat| seat.disk.durable_term().is_some_and(|durable| durable >= term)).count()
    }

    /// Writes that power losses have cost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost + self.seats.values().map(|seat| seat.disk.lost()).sum::<u64>()
    }

    /// Makes every disk report a write as durable before it is.
    pub(crate) fn make_disks_lie(&mut self) {
        for seat in self.seats.values_mut() {
            seat.disk = seat.disk.clone().lying();
        }
    }
}

/// Where a host is reached.
pub(crate) fn addrs(host: &str) -> ReplicaAddrs {
    ReplicaAddrs { control: format!("{host}:{CONTROL_PORT}"), heartbeat: format!("{host}:{HEARTBEAT_PORT}") }
}
