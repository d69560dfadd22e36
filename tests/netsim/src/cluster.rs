//! The hosts, and what the simulation keeps across their restarts.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use symphony_control_plane::Leadership;
use symphony_protocol::view::View;
use symphony_types::{RequestId, SubclusterId, Token};
use tokio::sync::watch;

use crate::dispatch::Obeyed;
use crate::hosted_replicas::HostedReplicas;
use crate::links::Links;
use crate::operator::Job;
use crate::plant::{Plant, Plants};
use crate::trace::Trace;

/// Port of Raft and the control surface.
pub(crate) const CONTROL_PORT: u16 = 7000;
/// Port for heartbeats.
pub(crate) const HEARTBEAT_PORT: u16 = 7001;
/// Port of a replica for requests.
pub(crate) const DISPATCH_PORT: u16 = 7002;
/// Port of a frontend for results.
pub(crate) const DATA_PORT: u16 = 7003;
/// Port of a backend for plans.
pub(crate) const EXEC_PORT: u16 = 7004;
/// Port of a frontend's console, which is never called here.
pub(crate) const CONSOLE_PORT: u16 = 7005;

/// Machines for replicas of the control plane; the first ones found the group, the others are spare.
pub(crate) const HOSTS: [&str; 5] = ["n1", "n2", "n3", "n4", "n5"];
/// Replicas that found the group; it never has fewer.
pub(crate) const VOTERS: usize = 3;
/// Processes that register and watch: backends and a frontend.
pub(crate) const MEMBERS: [&str; 3] = ["b1", "b2", "f1"];
/// Clients of the admin API.
pub(crate) const ADMINS: [&str; 2] = ["a1", "a2"];

/// What an observer of everything sees of a replica that runs.
pub(crate) struct Observed {
    pub(crate) views: watch::Receiver<Arc<View>>,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) in_contact: watch::Receiver<bool>,
    /// How far it has applied the log, and the hash of what that gave.
    pub(crate) digest: Box<dyn Fn() -> (u64, u64)>,
}

/// How requests fared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) submitted: u64,
    pub(crate) answered: u64,
    /// Results of requests that had one, or had ended without: too late, or a stage request that was taken back.
    pub(crate) again: u64,
    /// Not answered by their deadline.
    pub(crate) dropped: u64,
    /// Of those, asked for when nothing was wrong.
    pub(crate) dropped_in_peace: u64,
}

/// What outlives the processes; a cheap handle.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) trace: Trace,
    pub(crate) links: Links,
    pub(crate) replicas: Rc<RefCell<HostedReplicas>>,
    pub(crate) plants: Plants,
    boots: Rc<RefCell<u64>>,
    pub(crate) observed: Rc<RefCell<BTreeMap<&'static str, Observed>>>,
    /// What the operator is to do, in this order.
    pub(crate) jobs: Rc<RefCell<VecDeque<Job>>>,
    /// Plans that backends have accepted and the judge has not seen.
    pub(crate) obeyed: Rc<RefCell<Vec<Obeyed>>>,
    /// Replicas whose decision thread is about to hang, with every lead on it.
    pub(crate) hangs: Rc<RefCell<BTreeSet<&'static str>>>,
    /// Leads that hung: they decide nothing any more.
    pub(crate) hung: Rc<RefCell<BTreeSet<(SubclusterId, Token)>>>,
    pub(crate) ledger: Rc<RefCell<Ledger>>,
    /// Requests that a frontend took back from leaders, and the number of the last one that it had asked by then.
    pub(crate) withdrawn: Rc<RefCell<BTreeMap<RequestId, u64>>>,
    /// Requests that policies of sub-clusters have planned, by policy.
    pub(crate) planned: Rc<RefCell<BTreeMap<String, u64>>>,
    /// Faults of such policies, but for the one that is set to break a rule
    /// ([`FAULTY`](crate::dispatch::faulty_policy::FAULTY)).
    pub(crate) faults: Rc<RefCell<Vec<String>>>,
    /// Whether the admins go on asking.
    pub(crate) asking: Rc<RefCell<bool>>,
    /// Whether the frontend has requests for a pipeline.
    pub(crate) pipelines: Rc<RefCell<bool>>,
    /// Whether nothing is wrong, so that every request has to be answered.
    pub(crate) peace: Rc<RefCell<bool>>,
}

impl Cluster {
    pub(crate) fn new(seed: u64, dir: PathBuf, barrier_max: Duration, plants: Plants) -> Self {
        let mut replicas = HostedReplicas::new(seed, dir, barrier_max);
        if plants.has(Plant::LyingDisks) {
            replicas.make_disks_lie();
        }
        Self {
            trace: Trace::default(),
            links: Links::default(),
            replicas: Rc::new(RefCell::new(replicas)),
            plants,
            boots: Rc::default(),
            observed: Rc::default(),
            jobs: Rc::default(),
            obeyed: Rc::default(),
            hangs: Rc::default(),
            hung: Rc::default(),
            ledger: Rc::default(),
            withdrawn: Rc::default(),
            planned: Rc::default(),
            faults: Rc::default(),
            asking: Rc::new(RefCell::new(true)),
            pipelines: Rc::default(),
            peace: Rc::default(),
        }
    }

    /// A fresh boot id.
    pub(crate) fn fresh_boot(&self) -> u64 {
        let mut boots = self.boots.borrow_mut();
        *boots += 1;
        *boots
    }

    /// Control addresses, for clients.
    pub(crate) fn control_addrs() -> Vec<String> {
        HOSTS.iter().map(|name| format!("{name}:{CONTROL_PORT}")).collect()
    }

    /// The member that leads the control group, as far as it knows itself; the one of the latest term.
    pub(crate) fn leader(&self) -> Option<&'static str> {
        let observed = self.observed.borrow();
        let leaders = observed.iter().filter(|(_, replica)| replica.leadership.borrow().is_leader);
        leaders.max_by_key(|(_, replica)| replica.leadership.borrow().term).map(|(&name, _)| name)
    }
}
