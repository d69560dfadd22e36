//! Planned moves of leadership: from a leader that is alive to a successor that is ready.
//!
//! ```text
//! BeginHandover ─▶ the successor dials all backends ─▶ CompleteHandover ─▶ it seals, frontends follow, the old one is fenced
//!        └──────────────── CancelHandover, or an end of either's boot ────────▶ the leader stays, or is replaced
//! ```
//!
//! Until the hand-over is complete nothing changes: the leader leads, under its token.

use symphony_types::{BootId, Duty, NodeId, SubclusterId, Token};

use crate::effect::Effect;
use crate::leader_choice::{LeadCounts, Preference};
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::state::{ClusterState, Leader, Subcluster, Successor};

/// A hand-over to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeadTransfer {
    /// The sub-cluster.
    pub subcluster: SubclusterId,
    /// The assignment to be ended.
    pub token: Token,
    /// The successor.
    pub to: NodeId,
    /// The boot in which the successor is alive now.
    pub boot: BootId,
}

impl ClusterState {
    pub(crate) fn begin_handover(
        &mut self,
        index: u64,
        id: SubclusterId,
        token: Token,
        (to, boot): (NodeId, BootId),
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let able = self.can_decide(to, id);
        let entry = self.subclusters.get_mut(&id).ok_or(Refusal::UnknownSubclusterId { subcluster: id })?;
        if entry.token != token {
            return Err(Refusal::AssignmentOver { subcluster: id, named: token, current: entry.token });
        }
        let node = self.nodes.get(&to).ok_or(Refusal::UnknownNode { node: to })?;
        if node.boot != boot {
            let (what, name) = ("scheduler".into(), to.to_string());
            return Err(Refusal::StaleBoot { what, name, named: boot, current: node.boot });
        }
        let from = entry.leader.map(|l| l.node);
        if !able || !node.takes_leads() || from == Some(to) {
            return Err(Refusal::CannotSucceed { subcluster: id, node: to });
        }
        if let Some(pending) = entry.successor {
            let same = (pending.node, pending.boot) == (to, boot);
            return if same { Ok(Reply::Done) } else { Err(Refusal::HandoverUnderWay { subcluster: id }) };
        }
        entry.successor = Some(Successor { node: to, boot, since: index });
        let (name, from) = (entry.name.clone(), from.unwrap_or_default());
        effects.push(Effect::HandoverBegun { subcluster: id, name, from, to });
        Ok(Reply::Done)
    }

    pub(crate) fn complete_handover(
        &mut self,
        index: u64,
        id: SubclusterId,
        since: u64,
        (node, boot): (NodeId, BootId),
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let entry = self.subclusters.get(&id).ok_or(Refusal::UnknownSubclusterId { subcluster: id })?;
        if entry.successor != Some(Successor { node, boot, since }) {
            return Err(Refusal::HandoverOver { subcluster: id, since });
        }
        self.assign(index, id, Some(Leader { node, boot }), effects);
        self.refresh_standbys();
        Ok(Reply::Done)
    }

    pub(crate) fn cancel_handover(&mut self, id: SubclusterId, since: u64, effects: &mut Vec<Effect>) -> Outcome {
        let entry = self.subclusters.get_mut(&id).ok_or(Refusal::UnknownSubclusterId { subcluster: id })?;
        let Some(Successor { node: to, .. }) = entry.successor.take_if(|s| s.since == since) else {
            return Err(Refusal::HandoverOver { subcluster: id, since });
        };
        effects.push(Effect::HandoverCancelled { subcluster: id, name: entry.name.clone(), to });
        Ok(Reply::Done)
    }

    pub(crate) fn cede_lead(
        &mut self,
        index: u64,
        id: SubclusterId,
        token: Token,
        (node, boot): (NodeId, BootId),
        preference: Preference,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let entry = self.subclusters.get(&id).ok_or(Refusal::UnknownSubclusterId { subcluster: id })?;
        if entry.token != token || entry.leader != Some(Leader { node, boot }) {
            return Err(Refusal::AssignmentOver { subcluster: id, named: token, current: entry.token });
        }
        effects.push(Effect::LeadCeded { subcluster: id, name: entry.name.clone(), node });
        let mut counts = self.lead_counts();
        self.place(&mut counts, index, id, preference, effects);
        self.refresh_standbys();
        Ok(Reply::Done)
    }

    /// Hand-overs under way.
    #[must_use]
    pub fn handovers(&self) -> usize {
        self.subclusters.values().filter(|s| s.successor.is_some()).count()
    }

    /// The next sub-cluster to hand over from a draining replica. `avoid` is the Raft leader, which becomes leader only
    /// if no other replica can; `shunned` replicas get nothing. `None` if no sub-cluster has to move, or no replica can
    /// take it.
    #[must_use]
    pub fn next_drain(&self, avoid: Option<NodeId>, shunned: &dyn Fn(NodeId) -> bool) -> Option<LeadTransfer> {
        let drains = |node| self.nodes.get(&node).is_some_and(|n| n.duty() == Duty::Draining);
        let counts = self.eligible();
        // A sub-cluster that no replica can take does not hold up the others.
        let mut leaving = self.settled().filter(|(_, s)| s.leader.is_some_and(|l| drains(l.node)));
        let (id, subcluster, to) = leaving.find_map(|(id, subcluster)| {
            let candidates = counts.iter().filter(|&(&node, _)| !shunned(node) && self.can_decide(node, id));
            let (&to, _) = candidates.min_by_key(|&(&node, &led)| (Some(node) == avoid, led, node))?;
            Some((id, subcluster, to))
        })?;
        self.move_to(id, subcluster, to)
    }

    /// The next sub-cluster to hand over in order to spread the load, away from the Raft leader if another replica can
    /// lead. `None` once no replica leads two more than another. Each move shrinks the difference, so no move calls for
    /// its reverse.
    #[must_use]
    pub fn next_rebalance(&self, avoid: Option<NodeId>, shunned: &dyn Fn(NodeId) -> bool) -> Option<LeadTransfer> {
        let mut counts = self.eligible();
        let kept_free = avoid.filter(|node| counts.len() > 1 && counts.contains_key(node));
        if let Some(node) = kept_free {
            counts.remove(&node);
        }
        let candidates = counts.iter().filter(|(node, _)| !shunned(**node));
        let (&to, &fewest) = candidates.min_by_key(|&(&node, &led)| (led, node))?;
        let most = counts.values().copied().max().filter(|&most| most >= fewest + 2);
        let leaves = |node| Some(node) == kept_free || (most.is_some() && counts.get(&node).copied() == most);
        // Sub-clusters that this replica cannot lead stay where they are.
        let (id, subcluster) =
            self.settled().find(|&(id, s)| s.leader.is_some_and(|l| leaves(l.node)) && self.can_decide(to, id))?;
        self.move_to(id, subcluster, to)
    }

    /// Sub-clusters without a hand-over under way.
    fn settled(&self) -> impl Iterator<Item = (SubclusterId, &Subcluster)> {
        self.subclusters.iter().filter(|(_, s)| s.successor.is_none()).map(|(&id, s)| (id, s))
    }

    /// The lead counts of the replicas that may lead more.
    fn eligible(&self) -> LeadCounts {
        self.lead_counts().into_iter().filter(|(node, _)| self.nodes[node].takes_leads()).collect()
    }

    fn move_to(&self, id: SubclusterId, subcluster: &Subcluster, to: NodeId) -> Option<LeadTransfer> {
        let boot = self.nodes.get(&to)?.boot;
        Some(LeadTransfer { subcluster: id, token: subcluster.token, to, boot })
    }
}
