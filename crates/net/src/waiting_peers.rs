//! Who stands at a port and has not shown who it is.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections that are accepted and whose handshake is not done, by the address they come from: one address, from which
/// anybody may call, must not take all the places there are.
#[derive(Clone, Debug)]
pub struct WaitingPeers {
    per_peer_max: usize,
    waiting: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A connection's place; given back when dropped.
#[derive(Debug)]
pub struct WaitingPlace {
    peers: WaitingPeers,
    peer: IpAddr,
}

impl WaitingPeers {
    /// Lets so many from each address wait.
    #[must_use]
    pub fn new(per_peer_max: usize) -> Self {
        Self { per_peer_max, waiting: Arc::default() }
    }

    /// A place for one more from there; none if it has all it may have.
    #[must_use]
    pub fn admit(&self, peer: IpAddr) -> Option<WaitingPlace> {
        let mut waiting = self.waiting();
        let count = waiting.entry(peer).or_default();
        if *count >= self.per_peer_max {
            return None;
        }
        *count += 1;
        Some(WaitingPlace { peers: self.clone(), peer })
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        let mut waiting = self.peers.waiting();
        if let Some(count) = waiting.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_so_many_places_and_leaves_those_of_others() {
        let peers = WaitingPeers::new(2);
        let [greedy, other] = ["10.0.0.1", "10.0.0.2"].map(|addr| addr.parse().unwrap());
        let places = [peers.admit(greedy), peers.admit(greedy)];
        assert!(places.iter().all(Option::is_some) && peers.admit(greedy).is_none());
        assert!(peers.admit(other).is_some());
        drop(places);
        assert!(peers.waiting().is_empty(), "nothing is remembered of who has gone");
        assert!(peers.admit(greedy).is_some());
    }
}
