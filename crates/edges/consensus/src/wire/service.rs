//! The server side: checks addressee and content, and passes messages to the Raft core.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use openraft::Raft;
use openraft::raft::{AppendEntriesResponse, TransferLeaderError, VoteRequest, VoteResponse};
use symphony_net::{PeerInfo, Role};
use symphony_types::NodeId;
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

use super::addressing::Addressing;
use super::intake::{self, SnapshotIntake};
use super::numbers::Received;
use super::pb;
use crate::leadership::Leadership;
use crate::limits::APPENDS_UNANSWERED_MAX;
use crate::pacing::LastHeard;
use crate::participation::Participation;
use crate::raft_state_machine::Machine;
use crate::raft_types::{self, TypeConfig};
use crate::record::{Ballot, Position};

/// Answers the other replicas of the control group.
#[derive(Clone)]
pub struct RaftService {
    me: Arc<Addressing>,
    raft: Raft<TypeConfig, Machine>,
    participation: Arc<Participation>,
    received: Arc<Received>,
    last_heard: Arc<LastHeard>,
    removed: Arc<dyn Fn(NodeId) -> bool + Send + Sync>,
    /// Closes when the replica stops.
    leadership: watch::Receiver<Leadership>,
}

impl fmt::Debug for RaftService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaftService").field("me", &self.me).finish_non_exhaustive()
    }
}

fn stopped(error: impl fmt::Display) -> Status {
    Status::unavailable(format!("control group node has stopped: {error}"))
}

impl RaftService {
    pub(crate) fn new(
        me: Addressing,
        raft: Raft<TypeConfig, Machine>,
        participation: Arc<Participation>,
        received: Arc<Received>,
        last_heard: Arc<LastHeard>,
        removed: Arc<dyn Fn(NodeId) -> bool + Send + Sync>,
        leadership: watch::Receiver<Leadership>,
    ) -> Self {
        Self { me: Arc::new(me), raft, participation, received, last_heard, removed, leadership }
    }

    /// Accepts only members of this cluster, and only messages addressed to this node.
    fn check_sender(&self, peer: &PeerInfo, envelope: Option<pb::RaftEnvelope>) -> Result<u64, Status> {
        let from = intake::meant_for(&self.me, envelope)?;
        if !peer.may_be(Role::Scheduler, &from.to_string()) {
            return Err(Status::permission_denied(format!("{peer} speaks for node {from}")));
        }
        if (self.removed)(NodeId::new(from)) {
            return Err(Status::permission_denied(format!("node {from} was removed from the cluster")));
        }
        if !self.participation.is_open() {
            return Err(Status::unavailable(format!(
                "node {} does not know yet whether it may take part",
                self.me.node
            )));
        }
        Ok(from)
    }

    /// Answers to one peer's messages, in order, until this replica stops: a draining server waits for its streams.
    pub(super) fn answers(
        &self,
        peer: PeerInfo,
        requests: impl Stream<Item = Result<pb::RaftAppendRequest, Status>> + Send + 'static,
    ) -> impl Stream<Item = Result<pb::RaftAppendResponse, Status>> + Send + 'static {
        let mut leadership = self.leadership.clone();
        let stopped = async move { while leadership.changed().await.is_ok() {} };
        let here = Arc::new((self.clone(), peer));
        let answers = requests.map(move |request| {
            let here = Arc::clone(&here);
            async move { here.0.append(&here.1, request?).await }
        });
        // Each message goes to the core on arrival; only the answers wait for each other.
        answers.buffered(APPENDS_UNANSWERED_MAX).take_until(stopped)
    }

    async fn append(
        &self,
        peer: &PeerInfo,
        mut request: pb::RaftAppendRequest,
    ) -> Result<pb::RaftAppendResponse, Status> {
        use pb::raft_append_response::Outcome;
        let from = self.check_sender(peer, request.envelope.take())?;
        let number = request.number;
        let answer = |outcome| pb::RaftAppendResponse { outcome: Some(outcome), number };
        let vote = intake::leaders_vote(from, request.vote)?;
        let (leader, arrived) = ((from, vote.term), tokio::time::Instant::now().into_std());
        if !self.received.is_recent(arrived, leader, request.answered) {
            self.received.answered(tokio::time::Instant::now().into_std(), leader, number);
            return Ok(answer(Outcome::Stale(pb::RaftBlank {})));
        }
        if !self.participation.holds(vote, request.acknowledged.map(Position::from)) {
            return Ok(answer(Outcome::Forgotten(pb::RaftBlank {})));
        }
        let rpc = intake::append(vote, request)?;
        let outcome = match self.raft.append_entries(rpc).await.map_err(stopped)? {
            AppendEntriesResponse::Success => Outcome::Success(pb::RaftBlank {}),
            AppendEntriesResponse::PartialSuccess(id) => {
                Outcome::Partial(pb::RaftMatched { id: id.map(|id| Position::from(id).into()) })
            }
            AppendEntriesResponse::Conflict => Outcome::Conflict(pb::RaftBlank {}),
            AppendEntriesResponse::HigherVote(vote) => Outcome::HigherVote(Ballot::from(vote).into()),
        };
        if !matches!(outcome, Outcome::HigherVote(_)) {
            self.last_heard.note(arrived);
        }
        self.received.answered(tokio::time::Instant::now().into_std(), leader, number);
        Ok(answer(outcome))
    }

    fn vote_request(&self, request: Request<pb::RaftVoteRequest>) -> Result<VoteRequest<TypeConfig>, Status> {
        let peer = PeerInfo::of(&request)?;
        let mut request = request.into_inner();
        let from = self.check_sender(&peer, request.envelope.take())?;
        intake::vote(from, &request)
    }
}

fn vote_response(response: VoteResponse<TypeConfig>) -> Response<pb::RaftVoteResponse> {
    Response::new(pb::RaftVoteResponse {
        vote: Some(Ballot::from(response.vote).into()),
        granted: response.vote_granted,
        last_log: response.last_log_id.map(|id| Position::from(id).into()),
    })
}

#[tonic::async_trait]
impl pb::raft_server::Raft for RaftService {
    type ReplicateStream = Pin<Box<dyn Stream<Item = Result<pb::RaftAppendResponse, Status>> + Send>>;

    async fn replicate(
        &self,
        request: Request<Streaming<pb::RaftAppendRequest>>,
    ) -> Result<Response<Self::ReplicateStream>, Status> {
        let peer = PeerInfo::of(&request)?;
        Ok(Response::new(Box::pin(self.answers(peer, request.into_inner()))))
    }

    async fn vote(&self, request: Request<pb::RaftVoteRequest>) -> Result<Response<pb::RaftVoteResponse>, Status> {
        let rpc = self.vote_request(request)?;
        Ok(vote_response(self.raft.vote(rpc).await.map_err(stopped)?))
    }

    async fn pre_vote(&self, request: Request<pb::RaftVoteRequest>) -> Result<Response<pb::RaftVoteResponse>, Status> {
        let rpc = self.vote_request(request)?;
        Ok(vote_response(self.raft.pre_vote(rpc).await.map_err(stopped)?))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<pb::RaftSnapshotPart>>,
    ) -> Result<Response<pb::RaftSnapshotResponse>, Status> {
        let peer = PeerInfo::of(&request)?;
        let mut parts = request.into_inner();
        let mut header = intake::snapshot_header(parts.message().await?)?;
        let from = self.check_sender(&peer, header.envelope.take())?;
        let vote = intake::leaders_vote(from, header.vote)?;
        let mut intake = SnapshotIntake::new(header.length)?;
        while let Some(part) = parts.message().await? {
            intake.take(part)?;
        }
        let snapshot = intake.end(&self.me.cluster)?;
        let response = self.raft.install_full_snapshot(vote.into(), snapshot).await.map_err(stopped)?;
        Ok(Response::new(pb::RaftSnapshotResponse { vote: Some(Ballot::from(response.vote).into()) }))
    }

    async fn transfer_leader(
        &self,
        request: Request<pb::RaftTransferRequest>,
    ) -> Result<Response<pb::RaftTransferResponse>, Status> {
        use pb::raft_transfer_response::Outcome;
        let peer = PeerInfo::of(&request)?;
        let mut request = request.into_inner();
        let from = self.check_sender(&peer, request.envelope.take())?;
        let rpc = intake::transfer(from, &request)?;
        let outcome = match self.raft.handle_transfer_leader(rpc).await.map_err(stopped)? {
            Ok(()) => Outcome::Accepted(pb::RaftBlank {}),
            Err(TransferLeaderError::VoteChanged { expected, actual }) => Outcome::VoteChanged(pb::RaftVoteChanged {
                expected: Some(Ballot::from(expected).into()),
                actual: Some(Ballot::from(actual).into()),
            }),
            Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
                let id = |id: Option<raft_types::LogIdOf>| id.map(|id| Position::from(id).into());
                Outcome::LogNotFlushed(pb::RaftLogNotFlushed { expected: id(expected), actual: id(actual) })
            }
        };
        Ok(Response::new(pb::RaftTransferResponse { outcome: Some(outcome) }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};

    use pb::raft_client::RaftClient;
    use pb::raft_snapshot_part::Part;
    use symphony_net::{Incoming, Net, Port};
    use tokio::net::TcpListener;
    use tonic::Code;
    use tonic::transport::Server;

    use super::*;
    use crate::limits::WIRE_FORMAT;
    use crate::record::Members;
    use crate::snapshot::image::{self, Image};
    use crate::{ControlGroup, Engine, GroupConfig, OnDiskError, StateMachine};

    /// Panics if a message reaches the core.
    struct Untouchable;

    impl StateMachine for Untouchable {
        fn apply(&mut self, _index: u64, _command: &[u8]) -> Result<Vec<u8>, String> {
            Ok(Vec::new())
        }
        fn snapshot(&self) -> Vec<u8> {
            Vec::new()
        }
        fn restore(&mut self, _bytes: &[u8]) -> Result<(), String> {
            panic!("a damaged snapshot reached the state")
        }
    }

    /// A group of one, over plaintext, that refuses the nodes in `removed`.
    async fn served(
        removed: impl Fn(NodeId) -> bool + Send + Sync + 'static,
    ) -> (ControlGroup, RaftClient<tonic::transport::Channel>, impl FnOnce(), tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut config = GroupConfig::new("blue", NodeId::new(1), BTreeMap::new(), dir.path().to_owned());
        (config.engine, config.on_disk_error) = (Engine::Memory, OnDiskError::Stop);
        let group = ControlGroup::start(config, Untouchable).await.expect("starts");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("address");
        let incoming = Incoming::new(listener, Net::plaintext(), Port::new("blue", &Role::ALL, 256)).into_stream();
        let server = Server::builder().add_service(group.service(removed)).serve_with_incoming(incoming);
        let server = tokio::spawn(server);
        let client = RaftClient::connect(format!("http://{address}")).await.expect("connects");
        (group, client, move || server.abort(), dir)
    }

    fn envelope() -> pb::RaftEnvelope {
        pb::RaftEnvelope { format: WIRE_FORMAT, cluster: "blue".into(), from: 2, to: 1 }
    }

    fn heartbeat(number: u64) -> pb::RaftAppendRequest {
        let vote = Ballot { term: 3, node: 2, committed: true };
        pb::RaftAppendRequest { envelope: Some(envelope()), vote: Some(vote.into()), number, ..Default::default() }
    }

    /// The stream's answers to these requests, and how it ends.
    async fn replicated(
        client: &mut RaftClient<tonic::transport::Channel>,
        requests: Vec<pb::RaftAppendRequest>,
    ) -> (Vec<pb::RaftAppendResponse>, Option<Status>) {
        let mut answers = client.replicate(futures::stream::iter(requests)).await.expect("opens").into_inner();
        let mut had = Vec::new();
        loop {
            match answers.message().await {
                Ok(Some(answer)) => had.push(answer),
                Ok(None) => return (had, None),
                Err(status) => return (had, Some(status)),
            }
        }
    }

    #[tokio::test]
    async fn a_stream_is_answered_in_order_and_ends_with_what_is_refused() {
        let (group, mut client, end, _dir) = served(|_| false).await;
        let (answers, ended) = replicated(&mut client, (1..=20).map(heartbeat).collect()).await;
        assert!(ended.is_none(), "{ended:?}");
        assert!(answers.iter().map(|answer| answer.number).eq(1..=20), "{answers:?}");

        let with = |change: fn(&mut pb::RaftAppendRequest)| {
            let mut request = heartbeat(2);
            change(&mut request);
            request
        };
        fn to(request: &mut pb::RaftAppendRequest) -> &mut pb::RaftEnvelope {
            request.envelope.as_mut().expect("an envelope")
        }
        let cases: [(&str, Code, pb::RaftAppendRequest); 7] = [
            ("run the same release on all replicas", Code::FailedPrecondition, with(|request| to(request).format = 1)),
            ("cluster \"red\"", Code::FailedPrecondition, with(|request| to(request).cluster = "red".into())),
            ("for node 3", Code::FailedPrecondition, with(|request| to(request).to = 3)),
            ("a vote for node 2", Code::FailedPrecondition, with(|request| to(request).from = 4)),
            ("envelope is missing", Code::InvalidArgument, with(|request| request.envelope = None)),
            ("vote is missing", Code::InvalidArgument, with(|request| request.vote = None)),
            (
                "follows entry",
                Code::InvalidArgument,
                with(|request| {
                    request.entries = vec![pb::RaftEntry {
                        id: Some(Position { term: 3, node: 2, index: 9 }.into()),
                        payload: Some(pb::raft_entry::Payload::Blank(pb::RaftBlank {})),
                    }]
                }),
            ),
        ];
        for (words, code, refused) in cases {
            let (answers, ended) = replicated(&mut client, vec![heartbeat(1), refused, heartbeat(3)]).await;
            let ended = ended.expect("refused");
            assert!(ended.code() == code && ended.message().contains(words), "{words}: {ended}");
            assert_eq!(answers.iter().map(|answer| answer.number).collect::<Vec<_>>(), [1], "{words}");
        }
        group.shutdown().await;
        end();
    }

    /// Callers are checked when a stream opens; a replica that was removed later has its stream open.
    #[tokio::test]
    async fn a_replica_that_is_removed_is_refused_over_the_stream_that_it_has() {
        let removed = Arc::new(AtomicBool::new(false));
        let is_removed = Arc::clone(&removed);
        let (group, mut client, end, _dir) =
            served(move |node| node == NodeId::new(2) && is_removed.load(Ordering::Acquire)).await;
        let (send, mut requests) = tokio::sync::mpsc::channel(1);
        let requests = futures::stream::poll_fn(move |context| requests.poll_recv(context));
        send.send(heartbeat(1)).await.expect("sent");
        let mut answers = client.replicate(requests).await.expect("opens").into_inner();
        assert_eq!(answers.message().await.expect("answers").map(|answer| answer.number), Some(1));
        removed.store(true, Ordering::Release);
        send.send(heartbeat(2)).await.expect("sent");
        let refused = answers.message().await.expect_err("refuses");
        assert!(refused.code() == Code::PermissionDenied && refused.message().contains("was removed"), "{refused}");
        group.shutdown().await;
        end();
    }

    #[tokio::test]
    async fn a_stream_ends_with_the_replica_that_answers_it() {
        let (group, mut client, end, _dir) = served(|_| false).await;
        let (send, mut requests) = tokio::sync::mpsc::channel(1);
        let requests = futures::stream::poll_fn(move |context| requests.poll_recv(context));
        send.send(heartbeat(1)).await.expect("sent");
        let mut answers = client.replicate(requests).await.expect("opens").into_inner();
        assert_eq!(answers.message().await.expect("answers").map(|answer| answer.number), Some(1));
        group.shutdown().await;
        assert!(answers.message().await.expect("ends").is_none(), "nothing was refused");
        drop(send);
        end();
    }

    /// Before formats were numbered, the cluster's name was in another field: each side finds that the other is of
    /// another release.
    #[test]
    fn formats_of_different_releases_refuse_each_other() {
        #[derive(Clone, PartialEq, prost::Message)]
        struct FirstEnvelope {
            #[prost(string, tag = "1")]
            cluster: String,
            #[prost(uint64, tag = "2")]
            from: u64,
            #[prost(uint64, tag = "3")]
            to: u64,
        }
        use prost::Message as _;
        let first = FirstEnvelope { cluster: "blue".into(), from: 2, to: 1 };
        let read = pb::RaftEnvelope::decode(&first.encode_to_vec()[..]).expect("decodes");
        assert_ne!(read.format, WIRE_FORMAT);
        let read = FirstEnvelope::decode(&envelope().encode_to_vec()[..]).expect("decodes");
        assert_eq!((read.cluster.as_str(), read.from, read.to), ("", 2, 1), "not for its cluster");
    }

    #[tokio::test]
    async fn a_snapshot_that_was_damaged_on_its_way_is_the_senders_error_and_nobody_elses() {
        let (group, mut client, end, _dir) = served(|_| false).await;

        let at = Some(Position { term: 3, node: 2, index: 9 });
        let image = Image { at, members_at: None, members: Members::default(), state: vec![7; 5_000] };
        let image = image::encode(image, "blue").expect("encodes").to_vec();
        let vote = Ballot { term: 3, node: 2, committed: true };
        for at in [0, 20, 30, 60, image.len() - 1] {
            let mut damaged = image.clone();
            damaged[at] ^= 1;
            let header = pb::RaftSnapshotHeader {
                envelope: Some(envelope()),
                vote: Some(vote.into()),
                length: damaged.len() as u64,
            };
            let parts = [Part::Header(header), Part::Chunk(damaged.into())];
            let parts = parts.map(|part| pb::RaftSnapshotPart { part: Some(part) });
            let refusal = client.install_snapshot(futures::stream::iter(parts)).await.expect_err("refuses");
            assert_eq!(refusal.code(), Code::DataLoss, "byte {at}: {refusal}");
        }
        assert!(group.leadership().has_changed().is_ok(), "the node goes on");
        group.shutdown().await;
        end();
    }
}
