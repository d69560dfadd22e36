//! Commands about scheduler replicas.

use symphony_types::{BootId, Duty, NodeId};

use crate::command::NodeRegistration;
use crate::effect::Effect;
use crate::leader_choice::Preference;
use crate::limits::NODES_MAX;
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::state::{ClusterState, Node};

const WHAT: &str = "scheduler";

impl ClusterState {
    pub(crate) fn register_node(
        &mut self,
        index: u64,
        registration: &NodeRegistration,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let NodeRegistration { node, boot, control_addr, dispatch_addr, beat_addr, disk, avoid } = registration;
        let (node, boot) = (*node, *boot);
        let mut preference = Preference { avoid: *avoid, last_choice: None };
        if self.removed_nodes.contains(&node) {
            return Err(Refusal::NodeRemoved { node });
        }
        let known = self.nodes.len();
        let new_entry = |duty, previous_boot| Node {
            boot,
            previous_boot,
            up: true,
            control_addr: control_addr.clone(),
            dispatch_addr: dispatch_addr.clone(),
            beat_addr: beat_addr.clone(),
            disk: *disk,
            duty,
            leaving: false,
        };
        match self.nodes.get_mut(&node) {
            None if known >= NODES_MAX => {
                return Err(Refusal::Limit { what: "scheduler replicas".into(), max: NODES_MAX as u64 });
            }
            None => {
                self.nodes.insert(node, new_entry(Duty::Serving, None));
            }
            Some(entry) if entry.disk != *disk => return Err(Refusal::DiskLost { node }),
            Some(entry) if entry.boot == boot => {
                let registered = (&entry.control_addr, &entry.dispatch_addr, &entry.beat_addr);
                if registered != (control_addr, dispatch_addr, beat_addr) {
                    return Err(Refusal::Changed { what: WHAT.into(), name: node.to_string(), boot });
                }
                if entry.up {
                    return Ok(Reply::Done);
                }
                entry.up = true;
            }
            Some(entry) if entry.previous_boot == Some(boot) => {
                let name = node.to_string();
                return Err(Refusal::StaleBoot { what: WHAT.into(), name, named: boot, current: entry.boot });
            }
            Some(entry) => {
                // A fast restart must not keep leadership without its memory: the old boot ends here.
                if entry.up {
                    effects.push(Effect::NodeDown { node, boot: entry.boot });
                }
                *entry = new_entry(entry.duty, Some(entry.boot));
                // Its program may be another one.
                self.policies_known.remove(&node);
                preference.last_choice = Some(node);
            }
        }
        effects.push(Effect::NodeUp { node, boot });
        self.assign_missing_leaders(index, preference, effects);
        Ok(Reply::Done)
    }

    pub(crate) fn node_down(
        &mut self,
        index: u64,
        node: NodeId,
        boot: BootId,
        avoid: Option<NodeId>,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let entry = self.nodes.get_mut(&node).ok_or(Refusal::UnknownNode { node })?;
        if entry.boot != boot {
            let name = node.to_string();
            return Err(Refusal::StaleBoot { what: WHAT.into(), name, named: boot, current: entry.boot });
        }
        if !entry.up {
            return Ok(Reply::Done);
        }
        entry.up = false;
        effects.push(Effect::NodeDown { node, boot });
        self.assign_missing_leaders(index, Preference { avoid, last_choice: None }, effects);
        Ok(Reply::Done)
    }
}
