//! Connections to the other replicas.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use openraft::{BasicNode, RaftNetworkFactory};
use symphony_net::{Expected, Net, Role};
use tonic::transport::Endpoint;

use super::addressing::Addressing;
use super::gate::Gate;
use super::numbers::Sent;
use super::peer::{Peer, PeerClient, Traffic};
use crate::raft_types::TypeConfig;
use crate::timing::Timing;

/// Target, address and kind of traffic of a connection.
type Lane = (u64, String, Traffic);

/// One connection per peer and kind of traffic, dialled at first use and shared.
///
/// Heartbeats have their own, so that neither a batch of entries nor a snapshot in front of them makes a healthy
/// leader look dead.
#[derive(Debug, Clone)]
pub(crate) struct Lanes {
    me: Addressing,
    net: Net,
    timing: Timing,
    gate: Arc<Gate>,
    clients: Arc<Mutex<HashMap<Lane, PeerClient>>>,
    /// By target, for all terms.
    sent: Arc<Mutex<HashMap<u64, Arc<Sent>>>>,
}

impl Lanes {
    pub(crate) fn new(me: Addressing, net: Net, timing: Timing, gate: Arc<Gate>) -> Self {
        Self { me, net, timing, gate, clients: Arc::default(), sent: Arc::default() }
    }

    fn peer(&self, target: u64, node: &BasicNode, traffic: Traffic) -> Peer {
        let client = self.client(target, &node.addr, traffic);
        Peer::new(self.me.clone(), target, client, traffic, self.timing.clone(), self.gate.clone())
    }

    fn client(&self, target: u64, address: &str, traffic: Traffic) -> Result<PeerClient, String> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (target, address.to_owned(), traffic);
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        // A member that moved leaves its old connection behind; it is dropped when the new one is made.
        clients.retain(|(node, _, lane), _| (*node, *lane) != (target, traffic));
        let channel = self
            .net
            .channel(&endpoint(address, &self.timing, traffic)?, Expected::named(Role::Scheduler, target.to_string()));
        let sent = Arc::clone(self.sent.lock().unwrap_or_else(PoisonError::into_inner).entry(target).or_default());
        let client = PeerClient::new(channel, self.timing.rpc_timeout, sent);
        clients.insert(key, client.clone());
        Ok(client)
    }
}

/// tonic sets no deadlines by itself: a black-holed peer would block a call for ever.
fn endpoint(address: &str, timing: &Timing, traffic: Traffic) -> Result<Endpoint, String> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| format!("member address \"{address}\" is not host:port: {error}"))?;
    let deadline = match traffic {
        Traffic::Snapshot => timing.snapshot_timeout,
        Traffic::Log | Traffic::Heartbeat => timing.rpc_timeout,
    };
    Ok(endpoint
        .connect_timeout(timing.connect_timeout)
        .timeout(deadline)
        .http2_keep_alive_interval(timing.keep_alive_interval)
        .keep_alive_timeout(timing.keep_alive_timeout)
        .keep_alive_while_idle(true))
}

impl RaftNetworkFactory<TypeConfig> for Lanes {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Peer {
        self.peer(target, node, Traffic::Log)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &BasicNode) -> Peer {
        self.peer(target, node, Traffic::Heartbeat)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &BasicNode) -> Peer {
        self.peer(target, node, Traffic::Snapshot)
    }
}
