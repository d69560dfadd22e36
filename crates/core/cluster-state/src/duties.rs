//! Commands that change the duty of processes: cordon, drain, leave, remove.

use symphony_types::{BootId, Duty, Member, NodeId};

use crate::effect::Effect;
use crate::leader_choice::Preference;
use crate::limits::NODES_REMOVED_MAX;
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::state::{ClusterState, Standing};

impl ClusterState {
    pub(crate) fn set_duty(&mut self, member: Member, duty: Duty, effects: &mut Vec<Effect>) -> Outcome {
        if let Member::Scheduler(id) = member {
            let node = self.nodes.get_mut(&id).ok_or(Refusal::UnknownNode { node: id })?;
            if std::mem::replace(&mut node.duty, duty) == duty {
                return Ok(Reply::Done);
            }
            // A replica that must not lead does not prepare to lead either.
            if !duty.takes_work() {
                self.cancel_handovers_to(id, effects);
            }
            self.refresh_standbys();
        } else {
            let (standing, _) = self.standing(member)?;
            if standing.duty == duty {
                return Ok(Reply::Done);
            }
            *standing = Standing { duty, drained: false, ..*standing };
        }
        effects.push(Effect::DutyChanged { member, duty });
        Ok(Reply::Done)
    }

    pub(crate) fn leave(&mut self, member: Member, boot: BootId, effects: &mut Vec<Effect>) -> Outcome {
        let stale = |name: String, current| Refusal::StaleBoot { what: "process".into(), name, named: boot, current };
        if let Member::Scheduler(id) = member {
            let node = self.nodes.get_mut(&id).ok_or(Refusal::UnknownNode { node: id })?;
            if node.boot != boot {
                return Err(stale(member.to_string(), node.boot));
            }
            if std::mem::replace(&mut node.leaving, true) {
                return Ok(Reply::Done);
            }
            self.cancel_handovers_to(id, effects);
            self.refresh_standbys();
        } else {
            let (standing, current) = self.standing(member)?;
            if current != boot {
                return Err(stale(member.to_string(), current));
            }
            if std::mem::replace(&mut standing.leaving, true) {
                return Ok(Reply::Done);
            }
            standing.drained = false;
        }
        effects.push(Effect::DutyChanged { member, duty: Duty::Draining });
        Ok(Reply::Done)
    }

    pub(crate) fn report_drained(
        &mut self,
        index: u64,
        member: Member,
        boot: BootId,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let (_, current) = self.standing(member)?;
        if current != boot {
            let (what, name) = ("process".into(), member.to_string());
            return Err(Refusal::StaleBoot { what, name, named: boot, current });
        }
        if let Member::Backend(id) = member
            && self.backends.get(&id).is_some_and(|b| b.moving.is_some_and(|moving| moving.retiring.is_some()))
        {
            self.rebind(index, id, effects);
            return Ok(Reply::Done);
        }
        let (standing, _) = self.standing(member)?;
        if standing.duty().takes_work() {
            return Err(Refusal::NotDraining { member: member.to_string() });
        }
        if !std::mem::replace(&mut standing.drained, true) {
            effects.push(Effect::Drained { member });
        }
        Ok(Reply::Done)
    }

    pub(crate) fn remove_node(
        &mut self,
        index: u64,
        node: NodeId,
        avoid: Option<NodeId>,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if self.removed_nodes.contains(&node) {
            return Ok(Reply::Done);
        }
        if self.removed_nodes.len() >= NODES_REMOVED_MAX {
            return Err(Refusal::Limit { what: "removed replicas".into(), max: NODES_REMOVED_MAX as u64 });
        }
        // A replica that never registered is removed as well: it may have voted.
        if let Some(entry) = self.nodes.remove(&node)
            && entry.up
        {
            effects.push(Effect::NodeDown { node, boot: entry.boot });
        }
        self.removed_nodes.insert(node);
        self.policies_known.remove(&node);
        effects.push(Effect::NodeRemoved { node });
        self.assign_missing_leaders(index, Preference { avoid, last_choice: None }, effects);
        Ok(Reply::Done)
    }

    fn cancel_handovers_to(&mut self, node: NodeId, effects: &mut Vec<Effect>) {
        for (&subcluster, entry) in &mut self.subclusters {
            if let Some(successor) = entry.successor.take_if(|s| s.node == node) {
                let (name, to) = (entry.name.clone(), successor.node);
                effects.push(Effect::HandoverCancelled { subcluster, name, to });
            }
        }
    }

    /// The standing of a backend or frontend, and its boot id.
    fn standing(&mut self, member: Member) -> Result<(&mut Standing, BootId), Refusal> {
        match member {
            Member::Scheduler(node) => Err(Refusal::UnknownNode { node }),
            Member::Backend(id) => {
                let entry = self.backends.get_mut(&id).ok_or(Refusal::UnknownBackend { backend: id })?;
                Ok((&mut entry.standing, entry.boot))
            }
            Member::Frontend(id) => {
                let entry = self.frontends.get_mut(&id).ok_or(Refusal::UnknownFrontend { frontend: id })?;
                Ok((&mut entry.standing, entry.boot))
            }
        }
    }
}
