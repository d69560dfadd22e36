//! Converts the protobuf message of a view from and to its type, and the ids and duties in it; each part is converted
//! where its type is.

use symphony_types::{BackendId, Duty, Epoch, FrontendId, Level, Member, NodeId};

use super::{View, ViewError};
use crate::control as pb;

impl From<pb::Duty> for Duty {
    fn from(duty: pb::Duty) -> Self {
        match duty {
            pb::Duty::Serving => Self::Serving,
            pb::Duty::Cordoned => Self::Cordoned,
            pb::Duty::Draining => Self::Draining,
        }
    }
}

impl From<Duty> for pb::Duty {
    fn from(duty: Duty) -> Self {
        match duty {
            Duty::Serving => Self::Serving,
            Duty::Cordoned => Self::Cordoned,
            Duty::Draining => Self::Draining,
        }
    }
}

impl From<Member> for pb::Member {
    fn from(member: Member) -> Self {
        let id = match member {
            Member::Scheduler(id) => pb::member::Id::Scheduler(id.get()),
            Member::Backend(id) => pb::member::Id::Backend(id.get()),
            Member::Frontend(id) => pb::member::Id::Frontend(id.get()),
        };
        Self { id: Some(id) }
    }
}

impl TryFrom<pb::Member> for Member {
    type Error = ViewError;
    fn try_from(member: pb::Member) -> Result<Self, ViewError> {
        match member.id {
            Some(pb::member::Id::Scheduler(id)) => Ok(Self::Scheduler(NodeId::new(id))),
            Some(pb::member::Id::Backend(id)) => Ok(Self::Backend(BackendId::new(id))),
            Some(pb::member::Id::Frontend(id)) => Ok(Self::Frontend(FrontendId::new(id))),
            None => Err(ViewError::Missing { what: "member".into(), field: "id" }),
        }
    }
}

impl TryFrom<pb::ClusterView> for View {
    type Error = ViewError;
    fn try_from(view: pb::ClusterView) -> Result<Self, ViewError> {
        Ok(Self {
            cluster: view.cluster,
            applied_index: view.applied_index,
            epoch: Epoch::new(view.epoch),
            level: Level::from_message(view.level),
            replica: NodeId::new(view.replica),
            control_leader: (view.control_leader != 0).then(|| NodeId::new(view.control_leader)),
            nodes: view.nodes.into_iter().map(Into::into).collect(),
            subclusters: view.subclusters.into_iter().map(Into::into).collect(),
            backends: view.backends.into_iter().map(Into::into).collect(),
            frontends: view.frontends.into_iter().map(Into::into).collect(),
            models: view.models.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            traffic: view.traffic.into_iter().map(|traffic| (traffic.model.clone(), traffic.into())).collect(),
            pipelines: view.pipelines.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            events: view.events.into_iter().map(Into::into).collect(),
            operations: view.operations.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            group: view.group.into_iter().map(Into::into).collect(),
            removed_nodes: view.removed_nodes.into_iter().map(NodeId::new).collect(),
            plans: view.plans.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
        })
    }
}

impl From<&View> for pb::ClusterView {
    fn from(view: &View) -> Self {
        Self {
            cluster: view.cluster.clone(),
            applied_index: view.applied_index,
            epoch: view.epoch.get(),
            replica: view.replica.get(),
            control_leader: view.control_leader.map_or(0, NodeId::get),
            nodes: view.nodes.iter().map(Into::into).collect(),
            subclusters: view.subclusters.iter().map(Into::into).collect(),
            backends: view.backends.iter().map(Into::into).collect(),
            frontends: view.frontends.iter().map(Into::into).collect(),
            models: view.models.iter().map(Into::into).collect(),
            events: view.events.iter().map(Into::into).collect(),
            operations: view.operations.iter().map(Into::into).collect(),
            group: view.group.iter().map(Into::into).collect(),
            removed_nodes: view.removed_nodes.iter().map(|node| node.get()).collect(),
            plans: view.plans.iter().map(Into::into).collect(),
            log_entries: 0,
            traffic: view.traffic.iter().map(Into::into).collect(),
            level: view.level.get().into(),
            pipelines: view.pipelines.values().map(Into::into).collect(),
        }
    }
}

/// The newest level that a process knows; none if it has not reported one.
pub(super) fn level_from_message(number: u32) -> Option<Level> {
    (number > 0).then(|| Level::from_message(number))
}

pub(super) fn level_to_message(level: Option<Level>) -> u32 {
    level.map_or(0, |level| level.get().into())
}
