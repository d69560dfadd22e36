//! Checks another replica's requests and converts them to the core's types. Pure: authentication and time of arrival
//! are the service's business.

use bytes::BytesMut;
use openraft::Snapshot;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest};
use tonic::Status;

use super::addressing::Addressing;
use super::codec::{self, Malformed};
use super::pb;
use crate::limits::{SNAPSHOT_IMAGE_BYTES_MAX, WIRE_FORMAT};
use crate::raft_state_machine::{SnapshotOf, snapshot_meta};
use crate::raft_types::{self, TypeConfig};
use crate::record::{Ballot, Position};
use crate::snapshot::image;

fn refuse(error: Malformed) -> Status {
    Status::invalid_argument(error.to_string())
}

/// The sender, if the message is for this replica of this cluster and in this release's format.
pub(super) fn meant_for(me: &Addressing, envelope: Option<pb::RaftEnvelope>) -> Result<u64, Status> {
    let envelope = envelope.ok_or_else(|| refuse(Malformed::Missing("envelope")))?;
    if envelope.format != WIRE_FORMAT {
        return Err(Status::failed_precondition(format!(
            "node {} speaks format {} of Raft's messages, node {} format {WIRE_FORMAT}: run the same release on all replicas",
            envelope.from, envelope.format, me.node
        )));
    }
    if envelope.cluster != me.cluster {
        return Err(Status::failed_precondition(format!(
            "message for cluster \"{}\" reached cluster \"{}\": check the addresses of node {}",
            envelope.cluster, me.cluster, envelope.from
        )));
    }
    if envelope.to != me.node {
        return Err(Status::failed_precondition(format!(
            "message for node {} reached node {}: check the addresses of node {}",
            envelope.to, me.node, envelope.from
        )));
    }
    Ok(envelope.from)
}

/// The vote that makes `from` leader.
pub(super) fn leaders_vote(from: u64, vote: Option<pb::RaftVote>) -> Result<Ballot, Status> {
    let vote = codec::ballot_of(vote, true).map_err(refuse)?;
    check_own_vote(from, vote)
}

/// A node requests and leads under its own id only.
fn check_own_vote(from: u64, vote: Ballot) -> Result<Ballot, Status> {
    if vote.node == from {
        Ok(vote)
    } else {
        Err(Status::failed_precondition(format!("node {from} presents a vote for node {}", vote.node)))
    }
}

/// The append, possibly without entries, of the leader with `vote`.
pub(super) fn append(vote: Ballot, request: pb::RaftAppendRequest) -> Result<AppendEntriesRequest<TypeConfig>, Status> {
    let previous = request.previous.map(Position::from);
    let records = codec::records(previous, request.entries).map_err(refuse)?;
    let entries = records.into_iter().map(raft_types::entry).collect::<Result<Vec<_>, _>>();
    Ok(AppendEntriesRequest {
        vote: vote.into(),
        prev_log_id: previous.map(Into::into),
        entries: entries.map_err(|reason| refuse(Malformed::Membership(reason)))?,
        leader_commit: request.leader_commit.map(|id| Position::from(id).into()),
    })
}

/// A candidate's request.
pub(super) fn vote(from: u64, request: &pb::RaftVoteRequest) -> Result<VoteRequest<TypeConfig>, Status> {
    let vote = codec::ballot_of(request.vote, false).map_err(refuse)?;
    let vote = check_own_vote(from, vote)?;
    let last_log = request.last_log.map(|id| Position::from(id).into());
    let mut rpc = VoteRequest::new(vote.into(), last_log);
    rpc.leadership_transfer = request.leadership_transfer;
    Ok(rpc)
}

/// A leader's request to a successor.
pub(super) fn transfer(
    from: u64,
    request: &pb::RaftTransferRequest,
) -> Result<TransferLeaderRequest<TypeConfig>, Status> {
    let vote = leaders_vote(from, request.from_leader)?;
    let last_log = request.last_log.map(|id| Position::from(id).into());
    Ok(TransferLeaderRequest::new(vote.into(), request.successor, last_log))
}

/// The header at the beginning of a snapshot.
pub(super) fn snapshot_header(first: Option<pb::RaftSnapshotPart>) -> Result<pb::RaftSnapshotHeader, Status> {
    match first.and_then(|first| first.part) {
        Some(pb::raft_snapshot_part::Part::Header(header)) => Ok(header),
        _ => Err(refuse(Malformed::Missing("snapshot header"))),
    }
}

/// A snapshot that arrives in chunks.
#[derive(Debug)]
pub(super) struct SnapshotIntake {
    length: usize,
    bytes: BytesMut,
}

impl SnapshotIntake {
    /// A snapshot with this announced length in bytes.
    pub(super) fn new(length: u64) -> Result<Self, Status> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > SNAPSHOT_IMAGE_BYTES_MAX {
            let max = SNAPSHOT_IMAGE_BYTES_MAX;
            return Err(refuse(Malformed::TooMany { what: "length of a snapshot", got: length, max }));
        }
        // Memory is allocated for what arrives, not for what is announced.
        Ok(Self { length, bytes: BytesMut::new() })
    }

    /// The next chunk.
    pub(super) fn take(&mut self, part: pb::RaftSnapshotPart) -> Result<(), Status> {
        let Some(pb::raft_snapshot_part::Part::Chunk(chunk)) = part.part else {
            return Err(refuse(Malformed::Missing("snapshot chunk")));
        };
        let got = self.bytes.len() + chunk.len();
        if got > self.length {
            return Err(refuse(Malformed::TooMany { what: "snapshot bytes sent", got, max: self.length }));
        }
        self.bytes.extend_from_slice(&chunk);
        Ok(())
    }

    /// All chunks have arrived. Verified here, so that a damaged image is the sender's error and never the core's.
    pub(super) fn end(self, cluster: &str) -> Result<SnapshotOf, Status> {
        let snapshot = self.bytes.freeze();
        let image = image::decode(&snapshot, cluster).map_err(|error| Status::data_loss(error.to_string()))?;
        let meta = snapshot_meta(&image).map_err(Status::data_loss)?;
        Ok(Snapshot { meta, snapshot })
    }
}
