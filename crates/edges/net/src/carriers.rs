//! What carries the frames of a process's links: what may, what does, and how often that was not what it might have
//! been.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::connection::PeerInfo;
use crate::fabric::Fabric;
use crate::rings::Rings;

/// Peers of which it is remembered that they refuse links over TCP; more than a cluster has processes.
const REQUIRED_BY_MAX: usize = 4096;

/// What carries the frames of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
    /// The connection itself.
    Tcp,
    /// Rings in shared memory; the connection only tells that the other end lives.
    SharedMemory,
    /// SENDs over RDMA; the connection only tells that the other end lives.
    Rdma,
}

impl Carrier {
    /// All of them.
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

/// Who wants what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CarrierWish {
    /// Somebody asked by name for something else than the connection: routes do not matter, and going without is worth
    /// a warning.
    pub expected: bool,
    /// A pair that has nothing else has no link.
    pub required: bool,
}

/// What may carry the frames of this process's links, and what does. One for each process; a handle.
#[derive(Clone, Debug, Default)]
pub struct Carriers(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rings: Option<Rings>,
    fabric: Option<Arc<dyn Fabric>>,
    wish: CarrierWish,
    links: Mutex<BTreeMap<u64, LinkRow>>,
    opened: AtomicU64,
    refused: AtomicU64,
    required_by: Mutex<BTreeSet<String>>,
}

/// One open link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRow {
    /// What it is for.
    pub link: &'static str,
    /// Who is at the other end.
    pub peer: String,
    /// What carries what comes from there.
    pub carrier: Carrier,
}

/// A link's place among those that are open; it is closed when this is dropped.
#[derive(Debug)]
pub struct LinkPlace {
    number: u64,
    carriers: Carriers,
}

impl Carriers {
    /// Rings with processes of this host if there are any, a fabric with others if there is one, else connections only.
    #[must_use]
    pub fn new(rings: Option<Rings>, fabric: Option<Arc<dyn Fabric>>, wish: CarrierWish) -> Self {
        Self(Arc::new(Inner { rings, fabric, wish, ..Inner::default() }))
    }

    /// Rings with processes of this host, if they may be used.
    #[must_use]
    pub fn rings(&self) -> Option<&Rings> {
        self.0.rings.as_ref()
    }

    /// A fabric with other hosts, for frames of a peer that has shown who it is: what it carries is told over mutual
    /// TLS only.
    #[must_use]
    pub fn fabric_with(&self, peer: &PeerInfo) -> Option<&Arc<dyn Fabric>> {
        self.0.fabric.as_ref().filter(|_| peer.identity.is_some())
    }

    /// Who wants what.
    #[must_use]
    pub fn wish(&self) -> CarrierWish {
        self.0.wish
    }

    /// A link is open; at first its connection carries it.
    #[must_use]
    pub fn opened(&self, link: &'static str, peer: String) -> LinkPlace {
        let number = self.0.opened.fetch_add(1, Ordering::Relaxed);
        lock(&self.0.links).insert(number, LinkRow { link, peer, carrier: Carrier::Tcp });
        LinkPlace { number, carriers: self.clone() }
    }

    /// Something else than the connection was asked for, and the two have nothing.
    pub fn refused(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was so.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// That peer turns away whoever speaks over the connection only.
    pub fn is_required_by(&self, peer: &str) {
        let mut known = lock(&self.0.required_by);
        if known.len() < REQUIRED_BY_MAX {
            known.insert(peer.to_owned());
        }
    }

    /// Whether that peer still does is not known: it may have been started again with another configuration.
    pub fn may_take_tcp(&self, peer: &str) {
        lock(&self.0.required_by).remove(peer);
    }

    /// Whether a link to that peer has to leave its connection before its first message.
    #[must_use]
    pub fn must_leave_tcp_with(&self, peer: &str) -> bool {
        self.0.wish.required || lock(&self.0.required_by).contains(peer)
    }

    /// The open links, in the order in which they were opened.
    #[must_use]
    pub fn links(&self) -> Vec<LinkRow> {
        lock(&self.0.links).values().cloned().collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LinkPlace {
    /// Its frames come another way from now on.
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
