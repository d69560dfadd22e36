//! The carriers of a process's links (TCP, shared memory, RDMA): which are available, which are in use, and how often
//! a wanted one was not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fabric::Fabric;
use crate::peer_info::PeerInfo;
use crate::rings::Rings;

/// The most remembered peers that refuse links over TCP; more than a cluster has processes.
const REQUIRED_BY_MAX: usize = 4096;

/// The carrier of a link's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
    /// The TCP connection itself.
    Tcp,
    /// Rings in shared memory; the connection then only shows that the peer lives.
    SharedMemory,
    /// SENDs over RDMA; the connection then only shows that the peer lives.
    Rdma,
}

impl Carrier {
    /// Every carrier.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::SharedMemory, Self::Rdma];

    /// The name in configuration, logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::SharedMemory => "shared-memory",
            Self::Rdma => "rdma",
        }
    }
}

/// How strongly another carrier than TCP is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CarrierPreference {
    /// The configuration names a carrier: address substitutes do not matter, and a fallback to TCP is logged as a
    /// warning.
    pub expected: bool,
    /// A pair of processes without another carrier gets no link.
    pub required: bool,
}

/// The available and used carriers of this process's links. One per process; a handle.
#[derive(Clone, Debug, Default)]
pub struct Carriers(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rings: Option<Rings>,
    fabric: Option<Arc<dyn Fabric>>,
    preference: CarrierPreference,
    links: Mutex<BTreeMap<u64, LinkRow>>,
    opened: AtomicU64,
    refused: AtomicU64,
    required_by: Mutex<BTreeSet<String>>,
}

/// One open link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRow {
    /// The purpose of the link.
    pub link: &'static str,
    /// Name or address of the process at the other end.
    pub peer: String,
    /// The carrier of incoming frames.
    pub carrier: Carrier,
}

/// Registers an open link; dropping it unregisters the link.
#[derive(Debug)]
pub struct LinkPlace {
    number: u64,
    carriers: Carriers,
}

impl Carriers {
    /// Rings within this host if given, a fabric to other hosts if given, else only TCP.
    #[must_use]
    pub fn new(rings: Option<Rings>, fabric: Option<Arc<dyn Fabric>>, preference: CarrierPreference) -> Self {
        Self(Arc::new(Inner { rings, fabric, preference, ..Inner::default() }))
    }

    /// Rings within this host, if they may be used.
    #[must_use]
    pub fn rings(&self) -> Option<&Rings> {
        self.0.rings.as_ref()
    }

    /// A fabric to other hosts, for authenticated peers only: its set-up is exchanged over mutual TLS.
    #[must_use]
    pub fn fabric_with(&self, peer: &PeerInfo) -> Option<&Arc<dyn Fabric>> {
        self.0.fabric.as_ref().filter(|_| peer.identity.is_some())
    }

    /// How strongly another carrier than TCP is wanted.
    #[must_use]
    pub fn preference(&self) -> CarrierPreference {
        self.0.preference
    }

    /// Registers a link, carried by its connection at first.
    #[must_use]
    pub fn opened(&self, link: &'static str, peer: String) -> LinkPlace {
        let number = self.0.opened.fetch_add(1, Ordering::Relaxed);
        lock(&self.0.links).insert(number, LinkRow { link, peer, carrier: Carrier::Tcp });
        LinkPlace { number, carriers: self.clone() }
    }

    /// Counts a pair of processes without the wanted carrier.
    pub fn refused(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that happened.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Records that this peer refuses links over TCP.
    pub fn is_required_by(&self, peer: &str) {
        let mut known = lock(&self.0.required_by);
        if known.len() < REQUIRED_BY_MAX {
            known.insert(peer.to_owned());
        }
    }

    /// Forgets that: the peer may have restarted with another configuration.
    pub fn may_take_tcp(&self, peer: &str) {
        lock(&self.0.required_by).remove(peer);
    }

    /// Whether a link to that peer must change its carrier before the first message.
    #[must_use]
    pub fn must_leave_tcp_with(&self, peer: &str) -> bool {
        self.0.preference.required || lock(&self.0.required_by).contains(peer)
    }

    /// The open links, in the order of their opening.
    #[must_use]
    pub fn links(&self) -> Vec<LinkRow> {
        lock(&self.0.links).values().cloned().collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LinkPlace {
    /// Records a change of the carrier.
    pub fn carried_by(&self, carrier: Carrier) {
        if let Some(row) = lock(&self.carriers.0.links).get_mut(&self.number) {
            row.carrier = carrier;
        }
    }
}

impl Drop for LinkPlace {
    fn drop(&mut self) {
        lock(&self.carriers.0.links).remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_listed_as_long_as_they_are_open_with_what_carries_them() {
        let carriers = Carriers::default();
        let (first, second) = (carriers.opened("dispatch", "a".into()), carriers.opened("execute", "b".into()));
        second.carried_by(Carrier::SharedMemory);
        let shown: Vec<_> = carriers.links().into_iter().map(|row| (row.link, row.carrier)).collect();
        assert_eq!(shown, [("dispatch", Carrier::Tcp), ("execute", Carrier::SharedMemory)]);
        drop(first);
        assert_eq!(carriers.links().len(), 1);
        drop(second);
        assert!(carriers.links().is_empty());
    }

    #[test]
    fn what_peers_require_is_remembered_within_bounds() {
        let carriers = Carriers::default();
        assert!(!carriers.must_leave_tcp_with("a"));
        carriers.is_required_by("a");
        assert!(carriers.must_leave_tcp_with("a") && !carriers.must_leave_tcp_with("b"));
        carriers.may_take_tcp("a");
        assert!(!carriers.must_leave_tcp_with("a"));
        for n in 0..2 * REQUIRED_BY_MAX {
            carriers.is_required_by(&n.to_string());
        }
        assert_eq!(lock(&carriers.0.required_by).len(), REQUIRED_BY_MAX);
    }
}
