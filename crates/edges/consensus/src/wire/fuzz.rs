//! The parsers of other replicas' messages as functions of arbitrary bytes: for the fuzz targets.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;

use super::addressing::Addressing;
use super::intake::{self, SnapshotIntake};
use super::numbers::Received;
use super::pb;
use super::peer;
use crate::raft_state_machine::snapshot_meta;
use crate::record::{Ballot, Body, Members, Position, Record};
use crate::snapshot::image::{self, Image};
use crate::timing::Timing;

/// The number of kinds of messages: the first byte modulo this selects one.
const KINDS: u8 = 7;
/// An append with given envelope and vote, so that its entries are tested and not its sender.
const ENTRIES: u8 = 6;

/// The receiver.
fn me() -> Addressing {
    Addressing { cluster: "blue".into(), node: 1 }
}

/// Parses a request or an answer between replicas; the first byte selects its kind. Returns whether it was accepted.
///
/// # Panics
/// For a defect only.
#[must_use]
pub fn raft_message(bytes: &[u8]) -> bool {
    let Some((which, bytes)) = bytes.split_first() else { return false };
    let taken = match which % KINDS {
        0 => pb::RaftAppendRequest::decode(bytes).ok().and_then(append),
        1 => vote(bytes),
        2 => transfer(bytes),
        3 => pb::RaftAppendResponse::decode(bytes).ok().and_then(|answer| peer::append_response(answer).ok()).map(drop),
        4 => pb::RaftVoteResponse::decode(bytes).ok().and_then(|answer| {
            let granted = answer.granted;
            let taken = peer::vote_response(answer).ok()?;
            assert_eq!(taken.vote_granted, granted);
            Some(())
        }),
        5 => {
            let answer = pb::RaftTransferResponse::decode(bytes).ok();
            answer.and_then(|answer| peer::transfer_response(answer).ok()).map(drop)
        }
        _ => pb::RaftAppendRequest::decode(bytes)
            .ok()
            .and_then(|sent| append(pb::RaftAppendRequest { envelope: envelope(), vote: vote_of(true), ..sent })),
    };
    taken.is_some()
}

fn append(mut request: pb::RaftAppendRequest) -> Option<()> {
    let from = intake::meant_for(&me(), request.envelope.take()).ok()?;
    let vote = intake::leaders_vote(from, request.vote).ok()?;
    assert!(vote.committed && vote.node == from, "{vote:?}");

    // Its numbers, whatever they are, determine its age.
    let (received, leader, arrived) = (Received::new(&Timing::lan()), (from, vote.term), Instant::now());
    assert!(received.is_recent(arrived, leader, request.answered), "nothing was answered before");
    received.answered(arrived, leader, request.number);
    let knows = request.number <= request.answered;
    let late = arrived + Duration::from_secs(60);
    assert_eq!(received.is_recent(late, leader, request.answered), knows || request.number == 0);

    let (previous, sent) = (request.previous.map(Position::from), request.entries.clone());
    let taken = intake::append(vote, request).ok()?;
    assert_eq!((taken.prev_log_id.map(Position::from), taken.entries.len()), (previous, sent.len()));
    let mut next = previous.map_or(Some(0), |previous| previous.index.checked_add(1));
    for (entry, sent) in taken.entries.into_iter().zip(sent) {
        let record = Record::from(entry);
        assert_eq!(Some(record.at.index), next, "the core takes it for granted that there is no gap");
        assert_eq!(Record::try_from(sent).as_ref(), Ok(&record), "the core gets what was sent");
        next = record.at.index.checked_add(1);
    }
    Some(())
}

fn vote(bytes: &[u8]) -> Option<()> {
    let mut request = pb::RaftVoteRequest::decode(bytes).ok()?;
    let from = intake::meant_for(&me(), request.envelope.take()).ok()?;
    let taken = Ballot::from(intake::vote(from, &request).ok()?.vote);
    assert!(!taken.committed && taken.node == from, "{taken:?}");
    Some(())
}

fn transfer(bytes: &[u8]) -> Option<()> {
    let mut request = pb::RaftTransferRequest::decode(bytes).ok()?;
    let from = intake::meant_for(&me(), request.envelope.take()).ok()?;
    let taken = intake::transfer(from, &request).ok()?;
    assert_eq!(*taken.to_node_id(), request.successor);
    Some(())
}

/// Parses a snapshot: after an even byte as an image, with length and hash corrected; after an odd one as the parts in
/// transit, each with its length in front. Returns whether it was accepted.
///
/// # Panics
/// For a defect only.
#[must_use]
pub fn raft_snapshot(bytes: &[u8]) -> bool {
    let Some((which, bytes)) = bytes.split_first() else { return false };
    let taken = if which % 2 == 0 { an_image(image::with_own_hash(bytes.to_vec())) } else { parts(bytes) };
    taken.is_some()
}

fn an_image(bytes: Vec<u8>) -> Option<()> {
    let taken = image::decode(&bytes, &me().cluster).ok()?;
    let again = image::encode(taken.clone(), &me().cluster).expect("what was taken fits its limits");
    assert_eq!(image::decode(&again, &me().cluster).as_ref(), Ok(&taken));
    let meta = snapshot_meta(&taken).ok()?;
    assert_eq!(meta.last_log_id.map(Position::from), taken.at);
    assert_eq!(Members::from(meta.last_membership.membership()), taken.members);
    Some(())
}

fn parts(mut bytes: &[u8]) -> Option<()> {
    let mut next = || match bytes.is_empty() {
        true => Ok(None),
        false => pb::RaftSnapshotPart::decode_length_delimited(&mut bytes).map(Some),
    };
    let mut header = intake::snapshot_header(next().ok()?).ok()?;
    let from = intake::meant_for(&me(), header.envelope.take()).ok()?;
    let _vote = intake::leaders_vote(from, header.vote).ok()?;
    let mut intake = SnapshotIntake::new(header.length).ok()?;
    while let Some(part) = next().ok()? {
        intake.take(part).ok()?;
    }
    let taken = intake.end(&me().cluster).ok()?;
    assert!(taken.snapshot.len() as u64 <= header.length, "no more than was announced");
    an_image(taken.snapshot.to_vec())
}

/// Valid messages, at least one of each kind.
#[must_use]
pub fn raft_message_seeds() -> Vec<Vec<u8>> {
    use pb::{raft_append_response as appended, raft_transfer_response as transferred};
    fn seed(kind: u8, message: &impl prost::Message) -> Vec<u8> {
        [vec![kind], message.encode_to_vec()].concat()
    }
    let (at, members) = (position(4), members());
    let record = |index, body| pb::RaftEntry::from(Record { at: position(index), body });
    let entries = vec![
        record(5, Body::Blank),
        record(6, Body::Command(Bytes::from_static(b"command"))),
        record(7, Body::Members(members.clone())),
    ];
    let append = pb::RaftAppendRequest {
        envelope: envelope(),
        vote: vote_of(true),
        previous: Some(at.into()),
        entries,
        leader_commit: Some(at.into()),
        number: 9,
        answered: 8,
        acknowledged: Some(at.into()),
    };
    let only = |previous, entries| pb::RaftAppendRequest { previous, entries, ..Default::default() };
    let following = only(Some(at.into()), vec![record(5, Body::Blank), record(6, Body::Blank)]);
    let first = only(None, vec![record(0, Body::Blank), record(1, Body::Members(members))]);
    let heartbeat = pb::RaftAppendRequest { entries: Vec::new(), number: 10, answered: 3, ..append.clone() };
    let vote = pb::RaftVoteRequest {
        envelope: envelope(),
        vote: vote_of(false),
        last_log: Some(at.into()),
        leadership_transfer: true,
    };
    let transfer = pb::RaftTransferRequest {
        envelope: envelope(),
        from_leader: vote_of(true),
        last_log: Some(at.into()),
        successor: 3,
    };
    let appended = [
        appended::Outcome::Success(pb::RaftBlank {}),
        appended::Outcome::Partial(pb::RaftMatched { id: Some(at.into()) }),
        appended::Outcome::Conflict(pb::RaftBlank {}),
        appended::Outcome::HigherVote(vote_of(true).unwrap_or_default()),
    ];
    let transferred = [
        transferred::Outcome::Accepted(pb::RaftBlank {}),
        transferred::Outcome::VoteChanged(pb::RaftVoteChanged { expected: vote_of(true), actual: vote_of(false) }),
        transferred::Outcome::LogNotFlushed(pb::RaftLogNotFlushed { expected: Some(at.into()), actual: None }),
    ];
    let mut seeds = vec![seed(0, &append), seed(0, &heartbeat), seed(1, &vote), seed(2, &transfer)];
    seeds.extend([seed(ENTRIES, &following), seed(ENTRIES, &first)]);
    seeds.extend(appended.map(|outcome| seed(3, &pb::RaftAppendResponse { outcome: Some(outcome), number: 9 })));
    seeds.push(seed(4, &pb::RaftVoteResponse { vote: vote_of(false), granted: true, last_log: Some(at.into()) }));
    seeds.extend(transferred.map(|outcome| seed(5, &pb::RaftTransferResponse { outcome: Some(outcome) })));
    seeds
}

/// Valid snapshots: as images, and as parts.
#[must_use]
pub fn raft_snapshot_seeds() -> Vec<Vec<u8>> {
    use pb::raft_snapshot_part::Part;
    let encode = |image| image::encode(image, &me().cluster).expect("it is small").to_vec();
    let empty = encode(Image { at: None, members_at: None, members: Members::default(), state: Vec::new() });
    let at = Some(position(9));
    let full = encode(Image { at, members_at: Some(position(2)), members: members(), state: b"state".to_vec() });
    let length = full.len() as u64;
    let mut parts = vec![Part::Header(pb::RaftSnapshotHeader { envelope: envelope(), vote: vote_of(true), length })];
    parts.extend(full.chunks(100).map(|chunk| Part::Chunk(Bytes::copy_from_slice(chunk))));
    let parts =
        parts.into_iter().map(|part| pb::RaftSnapshotPart { part: Some(part) }.encode_length_delimited_to_vec());
    let parts: Vec<u8> = parts.flatten().collect();
    vec![[vec![0], empty].concat(), [vec![0], full].concat(), [vec![1], parts].concat()]
}

fn position(index: u64) -> Position {
    Position { term: 3, node: 2, index }
}

fn envelope() -> Option<pb::RaftEnvelope> {
    Some(Addressing { node: 2, ..me() }.envelope(me().node))
}

fn vote_of(committed: bool) -> Option<pb::RaftVote> {
    Some(Ballot { term: 3, node: 2, committed }.into())
}

/// A change of members: two sets of voters, and a learner.
fn members() -> Members {
    Members {
        configs: vec![BTreeSet::from([1, 2, 3]), BTreeSet::from([1, 2, 4])],
        addresses: (1..=5).map(|id| (id, format!("127.0.0.1:{id}"))).collect::<BTreeMap<_, _>>(),
    }
}
