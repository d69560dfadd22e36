//! A group over real gRPC in which replicas' answers to a leader can be held back.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use symphony_net::{Incoming, Net, PeerInfo, Port, Role};
use symphony_testkit::until;
use symphony_types::NodeId;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::RaftService;
use super::pb::{self, raft_append_response::Outcome, raft_server::Raft, raft_server::RaftServer};
use crate::limits::APPENDS_UNANSWERED_MAX;
use crate::{ControlGroup, Engine, GroupConfig, Leadership, OnDiskError, StateMachine, Timing};

/// Consecutive stale messages before the result is checked.
const STALE_IN_A_ROW: u64 = 5;

/// The commands that were applied.
#[derive(Clone, Default)]
struct Applied(Arc<Mutex<Vec<Vec<u8>>>>);

impl Applied {
    fn has(&self, command: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|applied| applied == command.as_bytes())
    }
}

impl StateMachine for Applied {
    fn apply(&mut self, _index: u64, command: &[u8]) -> Result<Vec<u8>, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(command.to_vec());
        Ok(Vec::new())
    }
    fn snapshot(&self) -> Vec<u8> {
        Vec::new()
    }
    fn restore(&mut self, _bytes: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

/// The real service, but with held-back answers to appends of one leader.
struct Held {
    service: RaftService,
    /// The leader whose answers are held.
    held: watch::Receiver<Option<NodeId>>,
    /// Stale appends so far.
    stale: watch::Sender<u64>,
}

#[tonic::async_trait]
impl Raft for Held {
    type ReplicateStream = <RaftService as Raft>::ReplicateStream;

    async fn replicate(
        &self,
        request: Request<Streaming<pb::RaftAppendRequest>>,
    ) -> Result<Response<Self::ReplicateStream>, Status> {
        let (peer, from) = (PeerInfo::of(&request)?, Arc::new(AtomicU64::new(0)));
        let sender = Arc::clone(&from);
        let requests = request.into_inner().inspect(move |request| {
            if let Some(envelope) = request.as_ref().ok().and_then(|request| request.envelope.as_ref()) {
                sender.store(envelope.from, Ordering::Relaxed);
            }
        });
        let (held, stale) = (self.held.clone(), self.stale.clone());
        let answers = self.service.answers(peer, requests).map(move |answer| {
            if answer.as_ref().is_ok_and(|answer| matches!(answer.outcome, Some(Outcome::Stale(_)))) {
                stale.send_modify(|stale| *stale += 1);
            }
            let (mut held, from) = (held.clone(), NodeId::new(from.load(Ordering::Relaxed)));
            async move {
                let _ = held.wait_for(|held| *held != Some(from)).await;
                answer
            }
        });
        // Answers are delayed, not stopped: later appends are accepted all the same.
        Ok(Response::new(Box::pin(answers.buffered(APPENDS_UNANSWERED_MAX))))
    }

    async fn vote(&self, request: Request<pb::RaftVoteRequest>) -> Result<Response<pb::RaftVoteResponse>, Status> {
        self.service.vote(request).await
    }

    async fn pre_vote(&self, request: Request<pb::RaftVoteRequest>) -> Result<Response<pb::RaftVoteResponse>, Status> {
        self.service.pre_vote(request).await
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<pb::RaftSnapshotPart>>,
    ) -> Result<Response<pb::RaftSnapshotResponse>, Status> {
        self.service.install_snapshot(request).await
    }

    async fn transfer_leader(
        &self,
        request: Request<pb::RaftTransferRequest>,
    ) -> Result<Response<pb::RaftTransferResponse>, Status> {
        self.service.transfer_leader(request).await
    }
}

struct Replica {
    group: ControlGroup,
    applied: Applied,
    /// The leader whose answers are held back.
    hold: watch::Sender<Option<NodeId>>,
    stale: watch::Receiver<u64>,
    server: JoinHandle<()>,
}

impl Replica {
    async fn start(node: NodeId, voters: &BTreeMap<NodeId, SocketAddr>, listener: TcpListener, dirs: &Path) -> Self {
        let voters = voters.iter().map(|(node, address)| (*node, address.to_string())).collect();
        let mut config = GroupConfig::new("blue", node, voters, dirs.join(node.to_string()));
        (config.engine, config.on_disk_error, config.timing) = (Engine::Memory, OnDiskError::Stop, Timing::relaxed());
        let applied = Applied::default();
        let group = ControlGroup::start(config, applied.clone()).await.expect("starts");
        let ((hold, held), (stale, stale_seen)) = (watch::channel(None), watch::channel(0));
        let service = Held { service: group.raft_service(Arc::new(|_| false)), held, stale };
        let incoming = Incoming::new(listener, Net::plaintext(), Port::new("test", &Role::ALL, 256)).into_stream();
        let serve = Server::builder().add_service(RaftServer::new(service)).serve_with_incoming(incoming);
        let server = tokio::spawn(async move { serve.await.expect("serves") });
        Self { group, applied, hold, stale: stale_seen, server }
    }

    fn leadership(&self) -> Leadership {
        *self.group.leadership().borrow()
    }
}

struct Group {
    replicas: BTreeMap<NodeId, Replica>,
    _dirs: TempDir,
}

impl Group {
    async fn start() -> Self {
        let (mut voters, mut listeners) = (BTreeMap::new(), Vec::new());
        for node in (1..=3).map(NodeId::new) {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
            voters.insert(node, listener.local_addr().expect("address"));
            listeners.push((node, listener));
        }
        let (mut replicas, dirs) = (BTreeMap::new(), TempDir::new().expect("temporary directory"));
        for (node, listener) in listeners {
            replicas.insert(node, Replica::start(node, &voters, listener, dirs.path()).await);
        }
        Self { replicas, _dirs: dirs }
    }

    /// The leader with a quorum, and its term.
    async fn leader(&self) -> (NodeId, u64) {
        until("a leader with a quorum", || async {
            let (node, replica) = self.replicas.iter().find(|(_, replica)| replica.leadership().is_leader)?;
            let term = replica.leadership().term;
            replica.group.read_index().await.ok().map(|_| (*node, term))
        })
        .await
    }

    async fn end(self) {
        for replica in self.replicas.into_values() {
            replica.group.shutdown().await;
            replica.server.abort();
        }
    }
}

/// Waits for `count` more messages that a follower considers stale, or until another replica leads.
async fn stale_again(group: &Group, follower: &Replica, leader: (NodeId, u64), count: u64) {
    let expected = *follower.stale.borrow() + count;
    until("messages that are not believed, or another leader", || async {
        (*follower.stale.borrow() >= expected || group.leader().await != leader).then_some(())
    })
    .await;
}

/// One follower's answers are lost. The leader keeps its quorum with the other one, so only the numbers of the
/// messages tell the follower. Returns that follower; none if another leader was elected meanwhile, which may happen
/// on a busy machine.
async fn not_believed_by_one(group: &Group, command: &str) -> Option<NodeId> {
    let leader = group.leader().await;
    let (&id, follower) = group.replicas.iter().find(|(node, _)| **node != leader.0).expect("a follower");
    follower.hold.send_replace(Some(leader.0));
    stale_again(group, follower, leader, 1).await;
    let proposed = group.replicas[&leader.0].group.propose(command.as_bytes().to_vec()).await;
    stale_again(group, follower, leader, STALE_IN_A_ROW).await;
    let has = follower.applied.has(command);
    let undisturbed = proposed.is_ok() && group.leader().await == leader;
    follower.hold.send_replace(None);
    assert!(!(undisturbed && has), "{id} applies what a leader tells it that hears none of its answers");
    undisturbed.then_some(id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_hears_no_answers_is_not_believed() {
    let group = Group::start().await;
    let mut attempt = 0;
    let (follower, command) = loop {
        attempt += 1;
        let command = format!("while nothing is heard, {attempt}");
        if let Some(follower) = not_believed_by_one(&group, &command).await {
            break (follower, command);
        }
    };
    // Answers get through again, and the follower catches up.
    let follower = &group.replicas[&follower];
    until("it is believed again", || async { follower.applied.has(&command).then_some(()) }).await;

    // No answers get through, and an entry waits for its commit.
    let (leader, term) = group.leader().await;
    for replica in group.replicas.values() {
        replica.hold.send_replace(Some(leader));
    }
    let waits = group.replicas[&leader].group.clone();
    let waits = tokio::spawn(async move { waits.propose(b"waits".to_vec()).await });
    until("another leader", || async {
        let elected =
            group.replicas.iter().find(|(node, replica)| **node != leader && replica.leadership().is_leader)?.1;
        (elected.leadership().term > term && elected.group.read_index().await.is_ok()).then_some(())
    })
    .await;
    drop(waits.await);
    group.end().await;
}
