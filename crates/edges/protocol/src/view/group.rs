//! The control group: leader, voters, and how far each replica has applied the log.

use symphony_types::{Level, NodeId};

use super::message::{level_to_tell, level_told};
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
    /// The newest level that it knows, by its last heartbeat; none if it is not heard.
    pub level: Option<Level>,
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
        let pb::GroupMember { node, control_addr, applied_index, lag, level, .. } = member;
        let level = level_told(level);
        (NodeId::new(node), GroupMemberView { control_addr, role, applied_index, lag, level })
    }
}

impl From<(&NodeId, &GroupMemberView)> for pb::GroupMember {
    fn from((id, member): (&NodeId, &GroupMemberView)) -> Self {
        let role = match member.role {
            GroupRole::Leader => pb::GroupRole::Leader,
            GroupRole::Voter => pb::GroupRole::Voter,
            GroupRole::Learner => pb::GroupRole::Learner,
        };
        let GroupMemberView { applied_index, lag, .. } = *member;
        let (control_addr, level) = (member.control_addr.clone(), level_to_tell(member.level));
        Self { node: id.get(), control_addr, role: role.into(), applied_index, lag, level }
    }
}
