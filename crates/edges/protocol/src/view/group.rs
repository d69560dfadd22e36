//! The control group: leader, voters, and how far each replica has applied the log.

use symphony_types::{Level, Nanos, NodeId};

use super::message::{level_from_message, level_to_message};
use crate::control as pb;

/// A replica in the control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMemberView {
    /// `host:port` where the others reach it.
    pub control_addr: String,
    /// Its part.
    pub role: GroupRole,
    /// How far it has applied the log, by its last heartbeat; 0 if there was none.
    pub applied_index: u64,
    /// Entries that it has still to apply.
    pub lag: u64,
    /// The newest level that it knows, by its last heartbeat; none if it sends no heartbeats.
    pub level: Option<Level>,
    /// How long ago the leader last heard from it, at most since it leads; none of the leader itself, or of an older
    /// release.
    pub silent: Option<Nanos>,
    /// For how long it has not applied what the leader had applied then, although it sends heartbeats; none if it keeps
    /// up.
    pub stuck: Option<Nanos>,
}

/// A replica's part in the control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRole {
    /// It leads.
    Leader,
    /// It votes.
    Voter,
    /// It follows and does not vote (yet).
    Learner,
}

impl GroupRole {
    /// The stable label, for tables and JSON.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Voter => "voter",
            Self::Learner => "learner",
        }
    }
}

impl From<pb::GroupMember> for (NodeId, GroupMemberView) {
    fn from(member: pb::GroupMember) -> Self {
        let role = match member.role() {
            pb::GroupRole::Leader => GroupRole::Leader,
            pb::GroupRole::Voter => GroupRole::Voter,
            pb::GroupRole::Learner | pb::GroupRole::Unspecified => GroupRole::Learner,
        };
        let pb::GroupMember { node, control_addr, applied_index, lag, level, silent_ns, stuck_ns, .. } = member;
        let (level, silent, stuck) = (level_from_message(level), silent_ns.map(Nanos::new), stuck_ns.map(Nanos::new));
        (NodeId::new(node), GroupMemberView { control_addr, role, applied_index, lag, level, silent, stuck })
    }
}

impl From<(&NodeId, &GroupMemberView)> for pb::GroupMember {
    fn from((id, member): (&NodeId, &GroupMemberView)) -> Self {
        let role = match member.role {
            GroupRole::Leader => pb::GroupRole::Leader,
            GroupRole::Voter => pb::GroupRole::Voter,
            GroupRole::Learner => pb::GroupRole::Learner,
        };
        let GroupMemberView { applied_index, lag, silent, stuck, .. } = *member;
        let (control_addr, level) = (member.control_addr.clone(), level_to_message(member.level));
        let (silent_ns, stuck_ns) = (silent.map(Nanos::get), stuck.map(Nanos::get));
        Self { node: id.get(), control_addr, role: role.into(), applied_index, lag, level, silent_ns, stuck_ns }
    }
}
