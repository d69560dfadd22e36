//! Between the library's types and our words. Nothing else in this crate builds or takes apart an openraft value.

use std::fmt;

use bytes::Bytes;
use openraft::impls::leader_id_adv::LeaderId;
use openraft::{BasicNode, Entry, EntryPayload, LogId, Membership, StoredMembership, Vote};

use crate::record::{Ballot, Body, Members, Position, Record};

openraft::declare_raft_types!(
    /// The library's types as we use them; the leader id orders votes by (term, node), so that elections do not tie.
    pub(crate) TypeConfig:
        D = Command,
        R = Response,
        NodeId = u64,
        Node = BasicNode,
);

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Command(pub(crate) Bytes);

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command of {} bytes", self.0.len())
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The state machine's response; empty for the group's own entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response(pub(crate) Vec<u8>);

pub(crate) type LeaderIdOf = LeaderId<u64, u64>;
pub(crate) type LogIdOf = LogId<LeaderIdOf>;
pub(crate) type VoteOf = Vote<LeaderIdOf>;
pub(crate) type MembershipOf = Membership<u64, BasicNode>;
pub(crate) type StoredMembershipOf = StoredMembership<LeaderIdOf, u64, BasicNode>;
pub(crate) type EntryOf = Entry<LeaderIdOf, EntryPayload<Command, u64, BasicNode>>;

impl From<LogIdOf> for Position {
    fn from(id: LogIdOf) -> Self {
        Self { term: id.leader_id.term, node: id.leader_id.node_id, index: id.index }
    }
}

impl From<Position> for LogIdOf {
    fn from(at: Position) -> Self {
        LogId { leader_id: LeaderId { term: at.term, node_id: at.node }, index: at.index }
    }
}

impl From<VoteOf> for Ballot {
    fn from(vote: VoteOf) -> Self {
        Self { term: vote.leader_id.term, node: vote.leader_id.node_id, committed: vote.committed }
    }
}

impl From<Ballot> for VoteOf {
    fn from(ballot: Ballot) -> Self {
        Vote { leader_id: LeaderId { term: ballot.term, node_id: ballot.node }, committed: ballot.committed }
    }
}

impl From<&MembershipOf> for Members {
    fn from(membership: &MembershipOf) -> Self {
        Self {
            configs: membership.get_joint_config().clone(),
            addresses: membership.nodes().map(|(id, node)| (*id, node.addr.clone())).collect(),
        }
    }
}

/// A membership in the library's type.
///
/// # Errors
/// The inconsistency: an empty set of voters, or a voter without an address.
pub(crate) fn membership(members: Members) -> Result<MembershipOf, String> {
    if members.configs.is_empty() && members.addresses.is_empty() {
        return Ok(Membership::default());
    }
    let nodes: std::collections::BTreeMap<u64, BasicNode> =
        members.addresses.into_iter().map(|(id, address)| (id, BasicNode::new(address))).collect();
    Membership::new(members.configs, nodes).map_err(|error| error.to_string())
}

impl From<EntryOf> for Record {
    fn from(entry: EntryOf) -> Self {
        let body = match entry.payload {
            EntryPayload::Blank => Body::Blank,
            EntryPayload::Normal(command) => Body::Command(command.0),
            EntryPayload::Membership(membership) => Body::Members((&membership).into()),
        };
        Self { at: entry.log_id.into(), body }
    }
}

/// An entry in the library's type.
///
/// # Errors
/// The inconsistency of a membership.
pub(crate) fn entry(record: Record) -> Result<EntryOf, String> {
    let payload = match record.body {
        Body::Blank => EntryPayload::Blank,
        Body::Command(bytes) => EntryPayload::Normal(Command(bytes)),
        Body::Members(members) => EntryPayload::Membership(membership(members)?),
    };
    Ok(Entry { log_id: record.at.into(), payload })
}
