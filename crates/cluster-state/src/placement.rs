//! Who leads which sub-cluster.

use std::collections::BTreeMap;

use symphony_types::{NodeId, SubclusterId, Token};

use crate::effect::Effect;
use crate::state::{ClusterState, Leader};

/// Whom the choice of a leader passes over as long as somebody else is up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Preference {
    /// The Raft leader: its crash would cost an election before anything it led could be re-homed.
    pub(crate) avoid: Option<NodeId>,
    /// A replica that has just begun a new life: it has nothing in memory, and may crash again.
    pub(crate) last_choice: Option<NodeId>,
}

impl ClusterState {
    /// How many sub-clusters each living replica leads.
    fn load(&self) -> BTreeMap<NodeId, usize> {
        let mut load: BTreeMap<_, _> = self.nodes.iter().filter(|(_, n)| n.up).map(|(&id, _)| (id, 0)).collect();
        for leader in self.subclusters.values().filter_map(|s| s.leader) {
            if let Some(led) = load.get_mut(&leader.node) {
                *led += 1;
            }
        }
        load
    }

    /// The living replica that should lead one more sub-cluster: the one that leads fewest, ties to the smallest id.
    fn choose(&self, preference: Preference) -> Option<Leader> {
        let is = |choice: Option<NodeId>, node| choice == Some(node);
        let load = self.load();
        let rank = |&(&node, &led): &(&NodeId, &usize)| {
            (is(preference.avoid, node), is(preference.last_choice, node), led, node)
        };
        let (&node, _) = load.iter().min_by_key(rank)?;
        Some(Leader { node, boot: self.nodes[&node].boot })
    }

    /// Gives a sub-cluster a leader, or nobody if every replica is down. The index is the token.
    pub(crate) fn place(
        &mut self,
        index: u64,
        subcluster: SubclusterId,
        preference: Preference,
        effects: &mut Vec<Effect>,
    ) {
        let leader = self.choose(preference);
        let Some(entry) = self.subclusters.get_mut(&subcluster) else { return };
        entry.leader = leader;
        entry.token = Token::new(index);
        effects.push(Effect::LeaderChanged {
            subcluster,
            name: entry.name.clone(),
            leader: leader.map(|l| l.node),
            token: entry.token,
        });
    }

    /// Places every sub-cluster whose leader is not a living life of a replica, one after the other, so that the load
    /// of each placement counts for the next: one log entry re-homes everything a dead replica led.
    pub(crate) fn place_the_leaderless(&mut self, index: u64, preference: Preference, effects: &mut Vec<Effect>) {
        let nodes = &self.nodes;
        let lives = |leader: &Leader| nodes.get(&leader.node).is_some_and(|n| n.up && n.boot == leader.boot);
        let someone_up = nodes.values().any(|n| n.up);
        // Where nobody led and nobody can, nothing changes and the token stays.
        let orphans: Vec<_> = self
            .subclusters
            .iter()
            .filter(|(_, s)| match &s.leader {
                Some(leader) => !lives(leader),
                None => someone_up,
            })
            .map(|(&id, _)| id)
            .collect();
        for subcluster in orphans {
            self.place(index, subcluster, preference, effects);
        }
        self.refresh_standbys();
    }

    /// Lists the other living replicas of every sub-cluster, the least loaded first.
    pub(crate) fn refresh_standbys(&mut self) {
        let mut by_load: Vec<_> = self.load().into_iter().map(|(node, led)| (led, node)).collect();
        by_load.sort_unstable();
        for subcluster in self.subclusters.values_mut() {
            let leader = subcluster.leader.map(|l| l.node);
            subcluster.standbys = by_load.iter().map(|&(_, node)| node).filter(|&n| Some(n) != leader).collect();
        }
    }
}
