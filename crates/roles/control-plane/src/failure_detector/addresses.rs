//! The heartbeat addresses of the other replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use symphony_net::Net;
use symphony_protocol::view::View;
use symphony_types::NodeId;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often names are resolved again: moving a replica to another address takes longer.
const RESOLVE_EVERY: Duration = Duration::from_secs(2);

/// The heartbeat addresses of replicas: as registered, or else as configured, which is all that is known before the
/// first registration.
#[derive(Clone, Debug)]
pub(crate) struct HeartbeatAddresses {
    configured: Arc<BTreeMap<NodeId, String>>,
    views: watch::Receiver<Arc<View>>,
    /// Resolved names. The sender reads them here, because a resolver may take seconds, and a replica without
    /// heartbeats for so long is taken for dead.
    resolved: Arc<Mutex<BTreeMap<String, Vec<SocketAddr>>>>,
}

impl HeartbeatAddresses {
    pub(crate) fn new(configured: BTreeMap<NodeId, String>, views: watch::Receiver<Arc<View>>) -> Self {
        Self { configured: Arc::new(configured), views, resolved: Arc::default() }
    }

    pub(crate) fn of(&self, node: NodeId) -> Option<String> {
        let registered = self.views.borrow().nodes.get(&node).map(|n| n.beat_addr.clone()).filter(|a| !a.is_empty());
        registered.or_else(|| self.configured.get(&node).cloned())
    }

    /// The last known sockets of `addr` (`host:port`); empty if its name is not resolved yet. Never waits.
    pub(crate) fn sockets(&self, addr: &str) -> Vec<SocketAddr> {
        match addr.parse() {
            Ok(socket) => vec![socket],
            Err(_) => self.resolved().get(addr).cloned().unwrap_or_default(),
        }
    }

    /// Resolves names until stopped: new ones at once, all of them again after [`RESOLVE_EVERY`]. A failed look-up
    /// keeps the last result. At most one look-up per name is in progress.
    pub(crate) async fn keep_resolved(self, net: Net, stop: CancellationToken) {
        let mut views = self.views.clone();
        let mut every = tokio::time::interval(RESOLVE_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut look_ups, mut under_way) = (FuturesUnordered::new(), BTreeSet::new());
        loop {
            let all = tokio::select! {
                () = stop.cancelled() => return,
                _ = every.tick() => true,
                changed = views.changed() => if changed.is_ok() { false } else { return },
                Some(name) = look_ups.next() => {
                    under_way.remove(&name);
                    continue;
                }
            };
            let names = self.names(&net);
            self.resolved().retain(|name, _| names.contains(name));
            for name in names {
                if (all || !self.resolved().contains_key(&name)) && under_way.insert(name.clone()) {
                    look_ups.push(self.resolve(name));
                }
            }
        }
    }

    /// The names among the other replicas' addresses.
    fn names(&self, net: &Net) -> BTreeSet<String> {
        let registered: Vec<_> = self.views.borrow().nodes.values().map(|node| node.beat_addr.clone()).collect();
        let addrs = registered.iter().chain(self.configured.values()).filter(|addr| !addr.is_empty());
        let dialled = addrs.map(|addr| net.through(addr));
        dialled.filter(|addr| addr.parse::<SocketAddr>().is_err()).map(str::to_owned).collect()
    }

    async fn resolve(&self, name: String) -> String {
        match tokio::net::lookup_host(&name).await {
            Ok(found) => drop(self.resolved().insert(name.clone(), found.collect())),
            Err(error) => tracing::debug!(name, %error, "a replica's heartbeat address cannot be resolved"),
        }
        name
    }

    fn resolved(&self) -> MutexGuard<'_, BTreeMap<String, Vec<SocketAddr>>> {
        self.resolved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::NodeView;

    use super::*;

    #[tokio::test]
    async fn names_are_resolved_elsewhere_and_what_is_known_stays() {
        let configured = [(1, "127.0.0.1:7"), (2, "localhost:8"), (3, "without-a-port")];
        let configured = configured.map(|(id, addr)| (NodeId::new(id), addr.to_owned())).into();
        let (view_sender, views) = watch::channel(Arc::new(View::default()));
        let addresses = HeartbeatAddresses::new(configured, views);
        assert_eq!(addresses.sockets("127.0.0.1:7").len(), 1, "nothing to resolve");
        assert!(addresses.sockets("localhost:8").is_empty(), "and nobody is asked who may take long");

        let stop = CancellationToken::new();
        let resolving = tokio::spawn(addresses.clone().keep_resolved(Net::plaintext(), stop.clone()));
        let known = async |addr: &str| {
            let known = async {
                while addresses.sockets(addr).is_empty() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), known).await.expect("the name is resolved");
        };
        known("localhost:8").await;
        let node = NodeView { beat_addr: "localhost:10".into(), ..NodeView::default() };
        view_sender.send_replace(Arc::new(View { nodes: [(NodeId::new(4), node)].into(), ..View::default() }));
        known("localhost:10").await;
        assert!(addresses.sockets("without-a-port").is_empty());
        stop.cancel();
        resolving.await.unwrap();
        assert!(!addresses.sockets("localhost:8").is_empty());
    }
}
