//! What must hold at every moment, seen by an observer of everything.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use symphony_protocol::view::View;
use symphony_types::{BootId, Duty, GpuId, Invariant, NodeId, SubclusterId, Token};

use crate::cluster::{Cluster, MEMBERS, VOTERS};
use crate::dispatch::Obeyed;

/// The least votes that are a majority: groups never have fewer members than that takes.
const MAJORITY_MIN: usize = VOTERS / 2 + 1;

/// Remembers what must not be contradicted later.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// The leaders of the control group by term. Votes are ordered by term and node, so a term may have several
    /// leaders, one after the other; their commits are judged by the states.
    leaders: BTreeSet<(u64, &'static str)>,
    /// The cluster at every index that some replica showed, and the hash of the whole state.
    states: BTreeMap<u64, String>,
    hashes: BTreeMap<u64, u64>,
    /// The leaders of sub-clusters by token.
    led: BTreeMap<(SubclusterId, Token), (NodeId, BootId)>,
    /// Whose plans a GPU took under which token, and the last token.
    obeyed: BTreeMap<(GpuId, Token), (NodeId, BootId)>,
    obeyed_last: BTreeMap<GpuId, Token>,
    /// Index and epoch that each boot of a replica showed last.
    shown: BTreeMap<&'static str, (u64, u64)>,
    reported: BTreeMap<&'static str, (u64, Option<NodeId>)>,
}

impl Judge {
    /// Looks at every replica that runs, and at what the backends did.
    ///
    /// # Errors
    /// The invariant that is broken, with what contradicts what.
    pub(crate) fn check(&mut self, now: Duration, cluster: &Cluster) -> Result<(), String> {
        if let Some(broken) = Invariant::ALL.into_iter().find(|&i| symphony_telemetry::violations(i) > 0) {
            return Err(format!("{}: counted by a process itself: {}", broken.id(), broken.sentence()));
        }
        if let Some(fault) = cluster.faults.borrow().first() {
            return Err(fault.clone());
        }
        for plan in cluster.obeyed.borrow_mut().drain(..) {
            self.plan(plan)?;
        }
        let observed = cluster.observed.borrow();
        self.shown.retain(|name, _| observed.contains_key(name));
        for (&name, replica) in observed.iter() {
            let leadership = *replica.leadership.borrow();
            if leadership.is_leader && self.leaders.insert((leadership.term, name)) {
                let votes = cluster.replicas.borrow().durable_votes(leadership.term);
                if votes < MAJORITY_MIN {
                    return Err(format!("vote: {name} leads in term {}, which {votes} disks hold", leadership.term));
                }
            }
            let (index, hash) = match self.shown.get(name) {
                Some(&(index, _)) if index == replica.views.borrow().applied_index => (index, None),
                _ => {
                    let (index, hash) = (replica.digest)();
                    (index, Some(hash))
                }
            };
            if let Some(hash) = hash {
                let known = *self.hashes.entry(index).or_insert(hash);
                if known != hash {
                    return Err(format!("C6: at index {index} {name} has state {hash:#018x} and others {known:#018x}"));
                }
            }
            let view = replica.views.borrow().clone();
            let news = (view.applied_index, leadership.leader);
            if self.reported.insert(name, news) != Some(news) {
                let leader = leadership.leader.map_or_else(|| "nobody".to_owned(), |leader| leader.to_string());
                cluster.trace.note_at(now, format_args!("{name} has applied {} and follows {leader}", news.0));
            }
            self.state(name, &view)?;
        }
        Ok(())
    }

    fn plan(&mut self, Obeyed { gpu, token, leader }: Obeyed) -> Result<(), String> {
        if let Some(leader) = leader {
            let obeyed = *self.obeyed.entry((gpu, token)).or_insert(leader);
            if obeyed != leader {
                return Err(format!("C7: {gpu} obeyed {obeyed:?} and {leader:?} under token {token}"));
            }
        }
        let last = self.obeyed_last.entry(gpu).or_insert(token);
        if token < *last {
            return Err(format!("C7: {gpu} obeyed {leader:?} under token {token} after {last}"));
        }
        *last = token;
        Ok(())
    }

    fn state(&mut self, name: &'static str, view: &View) -> Result<(), String> {
        let shown = (view.applied_index, view.epoch.get());
        let before = self.shown.insert(name, shown).unwrap_or_default();
        if shown.0 < before.0 || shown.1 < before.1 {
            return Err(format!("C1: {name} showed index and epoch {before:?} and then {shown:?}"));
        }
        if shown == before && shown.0 > 0 {
            return Ok(());
        }
        // The answering replica, and its leader, differ by replica.
        let common = format!(
            "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
            view.epoch,
            view.nodes,
            view.subclusters,
            view.backends,
            view.frontends,
            view.models,
            view.operations,
            view.removed_nodes
        );
        let known = self.states.entry(view.applied_index).or_insert_with(|| common.clone());
        if *known != common {
            return Err(format!("C6: at index {} {name} shows\n{common}\nand others\n{known}", view.applied_index));
        }
        for (&id, subcluster) in &view.subclusters {
            let Some(leader) = subcluster.leader else { continue };
            let led = *self.led.entry((id, subcluster.token)).or_insert(leader);
            if led != leader {
                return Err(format!("I2, C7: {id} is led by {led:?} and {leader:?} under token {}", subcluster.token));
            }
            let newest = self.led.range((id, Token::default())..).take_while(|((other, _), _)| *other == id).last();
            let later = newest.is_some_and(|((_, token), _)| *token > subcluster.token);
            let newest_state = self.states.keys().next_back().is_some_and(|&index| index == view.applied_index);
            if later && newest_state {
                return Err(format!("C1: the token of {id} fell to {} at index {}", subcluster.token, shown.0));
            }
        }
        Ok(())
    }

    /// Whether the cluster serves as it should when nothing is wrong (I8): one leader that all follow, every process
    /// up, on duty and at the same index, every sub-cluster led by a live boot, every member registered, every removed
    /// one gone.
    pub(crate) fn serves(&self, cluster: &Cluster) -> Result<(), String> {
        if let Some(job) = cluster.jobs.borrow().front() {
            return Err(format!("the operator still has {job:?} to do"));
        }
        let (replicas, observed) = (cluster.replicas.borrow(), cluster.observed.borrow());
        if let Some((host, hosted)) = replicas.leaving().find(|(_, hosted)| hosted.ended.is_none()) {
            return Err(format!("{host} has not noticed that {} was removed", hosted.id));
        }
        let members: BTreeSet<_> = replicas.members().map(|(_, hosted)| hosted.id).collect();
        let mut leaders = BTreeSet::new();
        let mut indexes = BTreeSet::new();
        for (name, _) in replicas.members() {
            let Some(replica) = observed.get(name) else { return Err(format!("{name} is not there")) };
            if !*replica.in_contact.borrow() {
                return Err(format!("{name} is not in contact with the control group"));
            }
            let view = replica.views.borrow().clone();
            leaders.insert(replica.leadership.borrow().leader);
            indexes.insert(view.applied_index);
            let known: BTreeSet<_> = view.nodes.keys().copied().collect();
            if known != members {
                return Err(format!("{name} knows the replicas {known:?}, and they are {members:?}"));
            }
            if let Some((other, _)) = view.nodes.iter().find(|(_, n)| !n.up || n.duty != Duty::Serving) {
                return Err(format!("{name} sees {other} down, or off duty"));
            }
            if let Some((id, _)) = view.subclusters.iter().find(|(_, s)| {
                s.successor.is_some()
                    || s.leader.is_none_or(|(node, boot)| view.nodes.get(&node).is_none_or(|n| n.boot != Some(boot)))
            }) {
                return Err(format!("{name} sees {id} without a living leader, or handed over"));
            }
            let hung = cluster.hung.borrow();
            if let Some((id, _)) = view.subclusters.iter().find(|(id, s)| hung.contains(&(**id, s.token))) {
                return Err(format!("{name} sees {id} under a lead that hangs"));
            }
            let there = |member: &str| {
                view.backends.values().any(|b| b.name == member && b.up)
                    || view.frontends.values().any(|f| f.name == member)
            };
            if let Some(member) = MEMBERS.iter().find(|member| !there(member)) {
                return Err(format!("{name} does not see {member}"));
            }
        }
        if leaders.len() != 1 || leaders.contains(&None) {
            return Err(format!("the replicas follow {leaders:?}"));
        }
        if indexes.len() != 1 {
            return Err(format!("the replicas have applied {indexes:?}"));
        }
        Ok(())
    }

    /// Leaders of the control group, one after the other.
    pub(crate) fn leaders(&self) -> usize {
        self.leaders.len()
    }

    /// Leads of sub-clusters.
    pub(crate) fn leads(&self) -> usize {
        self.led.len()
    }

    /// The last index that was seen.
    pub(crate) fn last_index(&self) -> u64 {
        self.states.keys().next_back().copied().unwrap_or_default()
    }
}
