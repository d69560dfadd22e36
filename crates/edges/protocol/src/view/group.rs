//! The control group: leader, voters, and how far each replica has applied the log.

use symphony_types::NodeId;

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
        let pb::GroupMember { node, control_addr, applied_index, lag, .. } = member;
        (NodeId::new(node), GroupMemberView { control_addr, role, applied_index, lag })
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
        Self { node: id.get(), control_addr: member.control_addr.clone(), role: role.into(), applied_index, lag }
    }
}
