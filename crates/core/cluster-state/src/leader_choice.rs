//! Chooses the leader of each sub-cluster.

use std::collections::BTreeMap;

use symphony_types::{NodeId, SubclusterId, Token};

use crate::effect::Effect;
use crate::state::{ClusterState, Leader, Node, Subcluster, Successor};

/// Replicas that become leader only if no other one is up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Preference {
    /// The Raft leader: its crash would cost an election before its sub-clusters could get new leaders.
    pub(crate) avoid: Option<NodeId>,
    /// A replica that has just restarted, so that its memory is empty and it may crash again, or one that reports that
    /// it cannot lead. Even the Raft leader is preferred.
    pub(crate) last_choice: Option<NodeId>,
}

/// The number of sub-clusters that each living replica leads.
pub(crate) type LeadCounts = BTreeMap<NodeId, usize>;

fn lives(nodes: &BTreeMap<NodeId, Node>, leader: Leader) -> bool {
    nodes.get(&leader.node).is_some_and(|n| n.up && n.boot == leader.boot)
}

impl Successor {
    pub(crate) const fn as_leader(self) -> Leader {
        Leader { node: self.node, boot: self.boot }
    }
}

impl ClusterState {
    /// How many sub-clusters each living replica leads once the hand-overs under way are complete.
    pub(crate) fn lead_counts(&self) -> LeadCounts {
        let mut counts: LeadCounts = self.nodes.iter().filter(|(_, n)| n.up).map(|(&id, _)| (id, 0)).collect();
        let next = |s: &Subcluster| s.successor.map(Successor::as_leader).or(s.leader);
        for leader in self.subclusters.values().filter_map(next) {
            if let Some(led) = counts.get_mut(&leader.node) {
                *led += 1;
            }
        }
        counts
    }

    /// The living replica to lead one more sub-cluster: the one that leads fewest, ties to the smallest id. A cordoned
    /// or draining one leads if no other is up: service comes first.
    fn choose(&self, subcluster: SubclusterId, counts: &LeadCounts, preference: Preference) -> Option<Leader> {
        let is = |choice: Option<NodeId>, node| choice == Some(node);
        let rank = |&(&node, &led): &(&NodeId, &usize)| {
            let unwilling = !self.nodes[&node].takes_leads();
            // A replica that does not know the sub-cluster's policy would only cede the lead.
            let unable = !self.can_decide(node, subcluster);
            (unable, unwilling, is(preference.last_choice, node), is(preference.avoid, node), led, node)
        };
        let (&node, _) = counts.iter().min_by_key(rank)?;
        Some(Leader { node, boot: self.nodes[&node].boot })
    }

    /// Gives a sub-cluster a leader, or none if every replica is down. The index is the token. A successor that
    /// prepares to lead is chosen, since it is nearly ready.
    pub(crate) fn place(
        &mut self,
        counts: &mut LeadCounts,
        index: u64,
        subcluster: SubclusterId,
        preference: Preference,
        effects: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.subclusters.get(&subcluster) else { return };
        let successor = entry.successor.map(Successor::as_leader).filter(|&s| lives(&self.nodes, s));
        let leader = successor.or_else(|| self.choose(subcluster, counts, preference));
        if let Some(led) = leader.filter(|_| successor.is_none()).and_then(|l| counts.get_mut(&l.node)) {
            *led += 1;
        }
        self.assign(index, subcluster, leader, effects);
    }

    /// Makes `leader` the leader of a sub-cluster, with the index as the token.
    pub(crate) fn assign(
        &mut self,
        index: u64,
        subcluster: SubclusterId,
        leader: Option<Leader>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.subclusters.get_mut(&subcluster) else { return };
        (entry.leader, entry.successor, entry.token) = (leader, None, Token::new(index));
        effects.push(Effect::LeaderChanged {
            subcluster,
            name: entry.name.clone(),
            leader: leader.map(|l| l.node),
            token: entry.token,
        });
    }

    /// Assigns a leader to every sub-cluster without a living one, one after the other, so that each assignment counts
    /// for the next: one log entry replaces a dead replica everywhere. Dead successors are ignored.
    pub(crate) fn assign_missing_leaders(&mut self, index: u64, preference: Preference, effects: &mut Vec<Effect>) {
        let nodes = &self.nodes;
        for (&subcluster, entry) in &mut self.subclusters {
            let gone = entry.successor.take_if(|s| !lives(nodes, s.as_leader()));
            if let Some(Successor { node: to, .. }) = gone {
                effects.push(Effect::HandoverCancelled { subcluster, name: entry.name.clone(), to });
            }
        }
        let someone_up = nodes.values().any(|n| n.up);
        // If there was no leader and none is possible, nothing changes and the token stays.
        let orphaned = |s: &Subcluster| s.leader.map_or(someone_up, |leader| !lives(nodes, leader));
        let orphans: Vec<_> = self.subclusters.iter().filter(|(_, s)| orphaned(s)).map(|(&id, _)| id).collect();
        // Counted once: recounting for each of a thousand assignments would take a million steps.
        let mut counts = self.lead_counts();
        for subcluster in orphans {
            self.place(&mut counts, index, subcluster, preference, effects);
        }
        self.refresh_standbys();
    }

    /// Lists the standbys of every sub-cluster, the least loaded first.
    pub(crate) fn refresh_standbys(&mut self) {
        let counts = self.lead_counts().into_iter().filter(|(node, _)| self.nodes[node].takes_leads());
        let mut by_count: Vec<_> = counts.map(|(node, led)| (led, node)).collect();
        by_count.sort_unstable();
        for subcluster in self.subclusters.values_mut() {
            let leader = subcluster.leader.map(|l| l.node);
            subcluster.standbys = by_count.iter().map(|&(_, node)| node).filter(|&n| Some(n) != leader).collect();
        }
    }
}
