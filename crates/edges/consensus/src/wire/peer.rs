//! The client of one other replica.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderError, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RPCTypes, RaftNetworkV2, Snapshot};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use super::addressing::Addressing;
use super::codec::{self, Malformed};
use super::gate::Gate;
use super::numbers::Sent;
use super::pb::{self, raft_client::RaftClient};
use super::stream::AppendStream;
use crate::limits::{MESSAGE_BYTES_MAX, SNAPSHOT_CHUNK_BYTES};
use crate::raft_types::{LeaderIdOf, TypeConfig, VoteOf};
use crate::record::{Ballot, Position, Record};
use crate::timing::Timing;

/// The traffic of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Traffic {
    /// Entries, votes and transfers.
    Log,
    Heartbeat,
    Snapshot,
}

/// Sends to one replica over one connection.
#[derive(Debug)]
pub(crate) struct Peer {
    me: Addressing,
    target: u64,
    /// The client, or why there is none.
    client: Result<PeerClient, String>,
    traffic: Traffic,
    timing: Timing,
    gate: Arc<Gate>,
}

/// A connection, shared by all who send over it, and the stream of appends that it carries.
#[derive(Debug, Clone)]
pub(crate) struct PeerClient {
    calls: RaftClient<Channel>,
    appends: Arc<AppendStream>,
}

impl PeerClient {
    pub(crate) fn new(channel: Channel, limit: Duration, sent: Arc<Sent>) -> Self {
        let calls = RaftClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let appends = Arc::new(AppendStream::new(calls.clone(), limit, sent));
        Self { calls, appends }
    }
}

pub(super) type Failure = RPCError<TypeConfig>;

fn unreachable(text: impl ToString) -> Failure {
    RPCError::Unreachable(Unreachable::from_string(text))
}

fn malformed(error: Malformed) -> Failure {
    unreachable(format!("answer is malformed: {error}"))
}

impl Peer {
    pub(crate) fn new(
        me: Addressing,
        target: u64,
        client: Result<PeerClient, String>,
        traffic: Traffic,
        timing: Timing,
        gate: Arc<Gate>,
    ) -> Self {
        Self { me, target, client, traffic, timing, gate }
    }

    fn envelope(&self) -> Option<pb::RaftEnvelope> {
        Some(self.me.envelope(self.target))
    }

    fn client(&self) -> Result<RaftClient<Channel>, Failure> {
        self.client.as_ref().map(|client| client.calls.clone()).map_err(unreachable)
    }

    fn pass_gate(&self) -> Result<(), Failure> {
        if self.gate.is_stalled() {
            Err(unreachable("this leader's disk hangs and it keeps quiet"))
        } else if self.traffic == Traffic::Heartbeat || self.gate.is_open(tokio::time::Instant::now().into_std()) {
            // The library silences heartbeats of a leader without a quorum by itself.
            Ok(())
        } else {
            Err(unreachable("this leader has lost its quorum and keeps quiet"))
        }
    }

    /// Waits for an answer until `limit`; converts errors to the library's type.
    async fn call<T>(
        &self,
        action: RPCTypes,
        limit: Duration,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        let timeout = || Timeout { action, id: self.me.node, target: self.target, timeout: limit };
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) if matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled) => {
                Err(RPCError::Timeout(timeout()))
            }
            Ok(Err(status)) => {
                if status.code() == Code::FailedPrecondition {
                    tracing::error!(
                        peer = self.target,
                        reason = status.message(),
                        "peer refuses to speak with this node"
                    );
                }
                Err(unreachable(format!("node {}: {}: {}", self.target, status.code(), status.message())))
            }
            Err(_) => Err(RPCError::Timeout(timeout())),
        }
    }

    /// The library limits a vote by the shortest election timeout; our limit may be shorter, never longer.
    fn limit(&self, option: &RPCOption) -> Duration {
        option.soft_ttl().min(self.timing.rpc_timeout)
    }

    fn vote_request(&self, rpc: VoteRequest<TypeConfig>) -> pb::RaftVoteRequest {
        pb::RaftVoteRequest {
            envelope: self.envelope(),
            vote: Some(Ballot::from(rpc.vote).into()),
            last_log: rpc.last_log_id.map(|id| Position::from(id).into()),
            leadership_transfer: rpc.leadership_transfer,
        }
    }

    fn transfer_request(&self, req: &TransferLeaderRequest<TypeConfig>) -> pb::RaftTransferRequest {
        pb::RaftTransferRequest {
            envelope: self.envelope(),
            from_leader: Some(Ballot::from(*req.from_leader()).into()),
            last_log: req.last_log_id().map(|id| Position::from(*id).into()),
            successor: *req.to_node_id(),
        }
    }
}

pub(super) fn vote_response(response: pb::RaftVoteResponse) -> Result<VoteResponse<TypeConfig>, Failure> {
    let vote = codec::ballot(response.vote).map_err(malformed)?;
    let last_log = response.last_log.map(|id| Position::from(id).into());
    Ok(VoteResponse::new(VoteOf::from(vote), last_log, response.granted))
}

pub(super) fn append_response(response: pb::RaftAppendResponse) -> Result<AppendEntriesResponse<TypeConfig>, Failure> {
    use pb::raft_append_response::Outcome;
    match response.outcome.ok_or_else(|| malformed(Malformed::Missing("outcome")))? {
        Outcome::Success(_) => Ok(AppendEntriesResponse::Success),
        Outcome::Partial(matched) => {
            Ok(AppendEntriesResponse::PartialSuccess(matched.id.map(|id| Position::from(id).into())))
        }
        Outcome::Conflict(_) => Ok(AppendEntriesResponse::Conflict),
        Outcome::HigherVote(vote) => Ok(AppendEntriesResponse::HigherVote(Ballot::from(vote).into())),
        // The next message confirms this answer, and is sent at once.
        Outcome::Stale(_) => {
            Err(RPCError::Network(NetworkError::from_string("the request was under way for too long")))
        }
        Outcome::Forgotten(_) => Err(unreachable("it has forgotten what it acknowledged")),
    }
}

pub(super) fn transfer_response(
    response: pb::RaftTransferResponse,
) -> Result<TransferLeaderResponse<TypeConfig>, Failure> {
    use pb::raft_transfer_response::Outcome;
    let id = |id: Option<pb::RaftLogId>| id.map(|id| Position::from(id).into());
    match response.outcome.ok_or_else(|| malformed(Malformed::Missing("outcome")))? {
        Outcome::Accepted(_) => Ok(Ok(())),
        Outcome::VoteChanged(changed) => Ok(Err(TransferLeaderError::VoteChanged {
            expected: codec::ballot(changed.expected).map_err(malformed)?.into(),
            actual: codec::ballot(changed.actual).map_err(malformed)?.into(),
        })),
        Outcome::LogNotFlushed(log) => {
            Ok(Err(TransferLeaderError::LogNotFlushed { expected: id(log.expected), actual: id(log.actual) }))
        }
    }
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, Failure> {
        // The library's limit for appends is one heartbeat interval, which a follower's fsync alone can take. For
        // entries our limit applies. For heartbeats the library gives up, but the stream still reads a later answer
        // within our limit, which shows that the link works.
        self.pass_gate()?;
        let client = self.client.as_ref().map_err(unreachable)?;
        let (vote, last) = (Ballot::from(rpc.vote), rpc.entries.last().map(|entry| Position::from(entry.log_id)));
        let request = pb::RaftAppendRequest {
            // Set by the stream.
            number: 0,
            answered: 0,
            acknowledged: None,
            envelope: self.envelope(),
            vote: Some(vote.into()),
            previous: rpc.prev_log_id.map(|id| Position::from(id).into()),
            entries: rpc.entries.into_iter().map(|entry| Record::from(entry).into()).collect(),
            leader_commit: rpc.leader_commit.map(|id| Position::from(id).into()),
        };
        let answer = client.appends.send(request);
        let answer = async {
            let given_up =
                |_| Err(Status::cancelled("the stream was given up: an append before this one had no answer in time"));
            answer.await.unwrap_or_else(given_up).map(Response::new)
        };
        let response = append_response(self.call(RPCTypes::AppendEntries, self.timing.rpc_timeout, answer).await?)?;
        let durable = match &response {
            AppendEntriesResponse::Success => last,
            AppendEntriesResponse::PartialSuccess(matched) => matched.map(Position::from),
            AppendEntriesResponse::Conflict | AppendEntriesResponse::HigherVote(_) => None,
        };
        if let Some(at) = durable {
            client.appends.acknowledged(vote.term, at);
        }
        Ok(response)
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, Failure> {
        let mut client = self.client()?;
        let answer = client.vote(self.vote_request(rpc));
        vote_response(self.call(RPCTypes::Vote, self.limit(&option), answer).await?)
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, Failure> {
        let mut client = self.client()?;
        let answer = client.pre_vote(self.vote_request(rpc));
        vote_response(self.call(RPCTypes::Vote, self.limit(&option), answer).await?)
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf,
        snapshot: Snapshot<LeaderIdOf, u64, openraft::BasicNode, Bytes>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        self.pass_gate()?;
        let mut client = self.client()?;
        let parts = snapshot_parts(self.envelope(), vote.into(), snapshot.snapshot);
        let mut request = Request::new(futures::stream::iter(parts));
        request.set_timeout(self.timing.snapshot_timeout);
        let answer = client.install_snapshot(request);
        let sent = self.call(RPCTypes::InstallSnapshot, self.timing.snapshot_timeout, answer);
        let response = tokio::select! {
            response = sent => response?,
            closed = cancel => return Err(StreamingError::Closed(closed)),
        };
        let vote = codec::ballot(response.vote).map_err(malformed)?;
        Ok(SnapshotResponse::new(vote.into()))
    }

    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, Failure> {
        let mut client = self.client()?;
        let answer = client.transfer_leader(self.transfer_request(&req));
        transfer_response(self.call(RPCTypes::TransferLeader, self.limit(&option), answer).await?)
    }
}

/// A header and then the image in order.
fn snapshot_parts(envelope: Option<pb::RaftEnvelope>, vote: Ballot, image: Bytes) -> Vec<pb::RaftSnapshotPart> {
    use pb::raft_snapshot_part::Part;
    let header = pb::RaftSnapshotHeader { envelope, vote: Some(vote.into()), length: image.len() as u64 };
    let mut parts = vec![pb::RaftSnapshotPart { part: Some(Part::Header(header)) }];
    let mut rest = image;
    while !rest.is_empty() {
        // Slices of the same allocation: no copy before the socket.
        let chunk = rest.split_to(rest.len().min(SNAPSHOT_CHUNK_BYTES));
        parts.push(pb::RaftSnapshotPart { part: Some(Part::Chunk(chunk)) });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(target: u64) -> Peer {
        let me = Addressing { cluster: "blue".into(), node: 1 };
        let gate =
            Gate::new(Duration::from_millis(120), Duration::from_millis(240), tokio::sync::watch::channel(false).1);
        Peer::new(me, target, Err("not connected".into()), Traffic::Log, Timing::lan(), Arc::new(gate))
    }

    /// A hand-over request goes to every voter; a voter that considers itself the target would campaign against the
    /// successor.
    #[test]
    fn a_hand_over_names_the_successor_whoever_is_told() {
        let vote = Ballot { term: 3, node: 1, committed: true };
        let request = TransferLeaderRequest::new(vote.into(), 2, None);
        for receiver in [2, 3] {
            let sent = peer(receiver).transfer_request(&request);
            assert_eq!((sent.successor, sent.envelope.map(|envelope| envelope.to)), (2, Some(receiver)));
        }
    }

    #[test]
    fn a_snapshot_is_sent_whole_and_in_order() {
        let image: Bytes = (0..3 * SNAPSHOT_CHUNK_BYTES + 5).map(|byte| byte as u8).collect::<Vec<_>>().into();
        let vote = Ballot { term: 3, node: 1, committed: true };
        let mut parts = snapshot_parts(peer(2).envelope(), vote, image.clone()).into_iter();
        use pb::raft_snapshot_part::Part;
        let Some(Some(Part::Header(header))) = parts.next().map(|part| part.part) else { panic!("no header first") };
        assert_eq!(header.length, image.len() as u64);
        let sent: Vec<u8> = parts
            .flat_map(|part| match part.part {
                Some(Part::Chunk(chunk)) if chunk.len() <= SNAPSHOT_CHUNK_BYTES => chunk,
                other => panic!("expected a chunk, got {other:?}"),
            })
            .collect();
        assert_eq!(sent, image);
    }
}
