//! Converts between messages and our types; checks everything from a peer before it reaches the Raft core.

use std::collections::{BTreeMap, BTreeSet};

use super::pb;
use crate::limits::{ADDRESS_BYTES_MAX, COMMAND_BYTES_MAX, NODES_MAX};
use crate::record::{Ballot, Body, Members, Position, Record};

/// Why a message is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("{what} is {got}, expected at most {max}")]
    TooMany { what: &'static str, got: usize, max: usize },
    #[error("entry {got} follows entry {before:?}, expected the next one")]
    Gap { before: Option<u64>, got: u64 },
    #[error("vote of term {term} is {got}, expected {expected}")]
    Vote { term: u64, got: &'static str, expected: &'static str },
    #[error("membership is inconsistent: {0}")]
    Membership(String),
}

impl From<Position> for pb::RaftLogId {
    fn from(at: Position) -> Self {
        Self { term: at.term, node: at.node, index: at.index }
    }
}

impl From<pb::RaftLogId> for Position {
    fn from(id: pb::RaftLogId) -> Self {
        Self { term: id.term, node: id.node, index: id.index }
    }
}

impl From<Ballot> for pb::RaftVote {
    fn from(ballot: Ballot) -> Self {
        Self { term: ballot.term, node: ballot.node, committed: ballot.committed }
    }
}

impl From<pb::RaftVote> for Ballot {
    fn from(vote: pb::RaftVote) -> Self {
        Self { term: vote.term, node: vote.node, committed: vote.committed }
    }
}

/// A vote that must be present.
pub(crate) fn ballot(vote: Option<pb::RaftVote>) -> Result<Ballot, Malformed> {
    vote.map(Ballot::from).ok_or(Malformed::Missing("vote"))
}

/// A vote that must be present, and must be a leader's or a candidate's as `committed` says.
pub(crate) fn ballot_of(vote: Option<pb::RaftVote>, committed: bool) -> Result<Ballot, Malformed> {
    let name = |committed| if committed { "committed" } else { "a candidate's" };
    match ballot(vote)? {
        ballot if ballot.committed == committed => Ok(ballot),
        ballot => Err(Malformed::Vote { term: ballot.term, got: name(ballot.committed), expected: name(committed) }),
    }
}

impl From<Members> for pb::RaftMembership {
    fn from(members: Members) -> Self {
        let configs = members.configs.into_iter();
        Self {
            configs: configs.map(|voters| pb::RaftVoters { nodes: voters.into_iter().collect() }).collect(),
            members: members.addresses.into_iter().map(|(node, address)| pb::RaftMember { node, address }).collect(),
        }
    }
}

fn at_most(what: &'static str, got: usize, max: usize) -> Result<(), Malformed> {
    if got > max { Err(Malformed::TooMany { what, got, max }) } else { Ok(()) }
}

impl TryFrom<pb::RaftMembership> for Members {
    type Error = Malformed;

    fn try_from(wire: pb::RaftMembership) -> Result<Self, Malformed> {
        /// A joint membership has the old voters and the new.
        const CONFIGS_MAX: usize = 2;
        at_most("number of voter sets", wire.configs.len(), CONFIGS_MAX)?;
        at_most("number of members", wire.members.len(), NODES_MAX)?;
        let mut addresses = BTreeMap::new();
        for member in wire.members {
            at_most("length of a member's address", member.address.len(), ADDRESS_BYTES_MAX)?;
            addresses.insert(member.node, member.address);
        }
        let configs: Vec<BTreeSet<u64>> =
            wire.configs.into_iter().map(|voters| voters.nodes.into_iter().collect()).collect();
        for voters in &configs {
            if voters.is_empty() {
                return Err(Malformed::Membership("a set of voters is empty".to_owned()));
            }
            if let Some(voter) = voters.iter().find(|voter| !addresses.contains_key(voter)) {
                return Err(Malformed::Membership(format!("voter {voter} has no address")));
            }
        }
        Ok(Self { configs, addresses })
    }
}

impl From<Record> for pb::RaftEntry {
    fn from(record: Record) -> Self {
        use pb::raft_entry::Payload;
        let payload = match record.body {
            Body::Blank => Payload::Blank(pb::RaftBlank {}),
            Body::Command(bytes) => Payload::Command(bytes),
            Body::Members(members) => Payload::Membership(members.into()),
        };
        Self { id: Some(record.at.into()), payload: Some(payload) }
    }
}

impl TryFrom<pb::RaftEntry> for Record {
    type Error = Malformed;

    fn try_from(wire: pb::RaftEntry) -> Result<Self, Malformed> {
        use pb::raft_entry::Payload;
        let at = wire.id.ok_or(Malformed::Missing("entry id"))?.into();
        let body = match wire.payload.ok_or(Malformed::Missing("entry payload"))? {
            Payload::Blank(_) => Body::Blank,
            Payload::Command(bytes) => {
                at_most("length of a command", bytes.len(), COMMAND_BYTES_MAX)?;
                Body::Command(bytes)
            }
            Payload::Membership(members) => Body::Members(members.try_into()?),
        };
        Ok(Self { at, body })
    }
}

/// Entries that follow `previous` without a gap, which the Raft core assumes.
pub(crate) fn records(previous: Option<Position>, entries: Vec<pb::RaftEntry>) -> Result<Vec<Record>, Malformed> {
    let mut before = previous.map(|at| at.index);
    let mut records = Vec::with_capacity(entries.len());
    for entry in entries {
        let record = Record::try_from(entry)?;
        let expected = before.map_or(Some(0), |before| before.checked_add(1));
        if expected != Some(record.at.index) {
            return Err(Malformed::Gap { before, got: record.at.index });
        }
        before = Some(record.at.index);
        records.push(record);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blank(index: u64) -> pb::RaftEntry {
        Record { at: Position { term: 1, node: 1, index }, body: Body::Blank }.into()
    }

    #[test]
    fn entries_must_follow_each_other() {
        let previous = Position { term: 1, node: 1, index: 4 };
        assert_eq!(records(Some(previous), vec![blank(5), blank(6)]).map(|records| records.len()), Ok(2));
        assert_eq!(records(None, vec![blank(0)]).map(|records| records.len()), Ok(1));
        assert_eq!(records(Some(previous), vec![blank(6)]), Err(Malformed::Gap { before: Some(4), got: 6 }));
        assert_eq!(records(None, vec![blank(0), blank(2)]), Err(Malformed::Gap { before: Some(0), got: 2 }));
    }

    #[test]
    fn oversized_commands_and_odd_memberships_are_refused() {
        let command = |length| {
            let body = Body::Command(vec![0; length].into());
            Record::try_from(pb::RaftEntry::from(Record { at: Position { term: 1, node: 1, index: 0 }, body }))
        };
        assert!(command(COMMAND_BYTES_MAX).is_ok());
        assert!(matches!(command(COMMAND_BYTES_MAX + 1), Err(Malformed::TooMany { .. })));

        let voters = |nodes: &[u64]| pb::RaftVoters { nodes: nodes.to_vec() };
        let homeless = pb::RaftMembership { configs: vec![voters(&[1])], members: Vec::new() };
        assert!(matches!(Members::try_from(homeless), Err(Malformed::Membership(_))));
        let empty = pb::RaftMembership { configs: vec![voters(&[])], members: Vec::new() };
        assert!(matches!(Members::try_from(empty), Err(Malformed::Membership(_))));
        let three = pb::RaftMembership { configs: vec![voters(&[]); 3], members: Vec::new() };
        assert!(matches!(Members::try_from(three), Err(Malformed::TooMany { .. })));
    }

    #[test]
    fn a_leader_needs_a_committed_vote_and_a_candidate_must_not_have_one() {
        let vote = |committed| Some(pb::RaftVote { term: 1, node: 1, committed });
        assert!(ballot_of(vote(true), true).is_ok());
        assert!(ballot_of(vote(false), false).is_ok());
        assert!(matches!(ballot_of(vote(false), true), Err(Malformed::Vote { .. })));
        assert!(matches!(ballot_of(vote(true), false), Err(Malformed::Vote { .. })));
        assert_eq!(ballot_of(None, true), Err(Malformed::Missing("vote")));
    }
}
