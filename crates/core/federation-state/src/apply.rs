//! Applies commands: the only way in which the state changes.

use std::collections::BTreeMap;

use crate::command::{Command, LogEntry};
use crate::limits::{CLUSTERS_MAX, EVENTS_MAX, REPLICAS_MAX};
use crate::moves::call_off;
use crate::refusal::{Outcome, Refusal, Reply};
use crate::state::{Cause, Cluster, Event, FederationState, KindCapacity, Progress};

impl FederationState {
    /// Applies log entry `index`. The result depends only on the state, the index and the entry. Debug builds assert
    /// the named invariants afterwards.
    ///
    /// # Errors
    /// A [`Refusal`], which is a normal reply: only the index and, for an operator's command, the record of operations
    /// changed.
    pub fn apply_entry(&mut self, index: u64, entry: &LogEntry) -> Outcome {
        let outcome = self.apply(index, &entry.command);
        let made = self.events.iter_mut().rev().take_while(|event| event.index == index);
        made.for_each(|event| event.at_unix_ms = entry.at_unix_ms);
        outcome
    }

    /// Applies a command that is in no log (tests): its events have no time.
    ///
    /// # Errors
    /// As [`Self::apply_entry`].
    pub fn apply(&mut self, index: u64, command: &Command) -> Outcome {
        #[cfg(debug_assertions)]
        let before = self.clone();
        let outcome = self.decide(index, command);
        self.applied_index = self.applied_index.max(index);
        #[cfg(debug_assertions)]
        if let Err(violation) = crate::invariants::check(self).and(crate::invariants::check_step(&before, self)) {
            panic!("{violation} after {command:?} at index {index}");
        }
        outcome
    }

    fn decide(&mut self, index: u64, command: &Command) -> Outcome {
        if index <= self.applied_index {
            return Err(Refusal::IndexNotNew { index, applied: self.applied_index });
        }
        crate::validate::command(command)?;
        match command {
            Command::SeeCluster { name, control, kinds } => self.see_cluster(index, name, control, kinds),
            Command::ClusterLost { name, since } => self.cluster_lost(index, name, *since),
            Command::ClusterBack { name, since } => self.cluster_back(index, name, *since),
            Command::BeginMoves { moves, cause } => self.begin_moves(index, moves, *cause),
            Command::Unplaced { model, loaded_at, reason } => self.unplaced(index, model, *loaded_at, reason),
            Command::Loaded { model, since } => self.loaded(index, model, *since),
            Command::GiveUp { model, since, reason } => self.give_up(index, model, *since, reason),
            Command::CopyGone { model, cluster, since } => self.copy_gone(index, model, cluster, *since),
            Command::SeeReplica { replica } => self.see_replica(*replica),
            Command::Operate(operation) => return self.operate(index, operation),
        }?;
        Ok(self.reply())
    }

    pub(crate) const fn reply(&self) -> Reply {
        Reply { plan: self.plan }
    }

    pub(crate) fn note(&mut self, index: u64, what: String) {
        self.events.push_back(Event { index, at_unix_ms: 0, what });
        let surplus = self.events.len().saturating_sub(EVENTS_MAX);
        self.events.drain(..surplus);
    }

    pub(crate) fn known(&self, cluster: &str) -> Result<&Cluster, Refusal> {
        self.clusters.get(cluster).ok_or_else(|| Refusal::UnknownCluster { cluster: cluster.to_owned() })
    }

    fn see_cluster(
        &mut self,
        index: u64,
        name: &str,
        control: &[String],
        kinds: &BTreeMap<String, KindCapacity>,
    ) -> Result<(), Refusal> {
        if let Some(cluster) = self.clusters.get_mut(name) {
            cluster.control = control.to_vec();
            cluster.kinds.clone_from(kinds);
            return Ok(());
        }
        if self.clusters.len() >= CLUSTERS_MAX {
            return Err(Refusal::Limit { what: "clusters".into(), max: CLUSTERS_MAX as u64 });
        }
        let cluster = Cluster { control: control.to_vec(), kinds: kinds.clone(), reachable: true, since: index };
        self.clusters.insert(name.to_owned(), cluster);
        self.plan += 1;
        self.note(index, format!("cluster {name} belongs to the federation"));
        Ok(())
    }

    fn see_replica(&mut self, replica: u64) -> Result<(), Refusal> {
        if self.replicas.len() >= REPLICAS_MAX && !self.replicas.contains(&replica) {
            return Err(Refusal::Limit { what: "replicas".into(), max: REPLICAS_MAX as u64 });
        }
        self.replicas.insert(replica);
        Ok(())
    }

    fn standing(&mut self, name: &str, reachable: bool, since: u64) -> Result<&mut Cluster, Refusal> {
        self.known(name)?;
        let over = || Refusal::Over { what: format!("the standing of {name} since {since}") };
        self.clusters.get_mut(name).filter(|c| c.reachable == reachable && c.since == since).ok_or_else(over)
    }

    /// Cancels the moves to that cluster. Models at home there stay: a plan decides where they go.
    fn cluster_lost(&mut self, index: u64, name: &str, since: u64) -> Result<(), Refusal> {
        let cluster = self.standing(name, true, since)?;
        (cluster.reachable, cluster.since) = (false, index);
        let mut over = Vec::new();
        for model in self.models.values_mut().filter(|m| m.moving.as_ref().is_some_and(|moving| moving.to == name)) {
            over.extend(call_off(model, index).map(|moving| (model.spec.name.clone(), moving.since)));
        }
        for (model, since) in over {
            self.remember_end(&model, since, Progress::GivenUp(format!("cluster {name} does not answer")));
        }
        self.plan += 1;
        self.note(index, format!("cluster {name} does not answer"));
        Ok(())
    }

    /// A model that should move away because the cluster was unreachable, and has not moved yet, stays.
    fn cluster_back(&mut self, index: u64, name: &str, since: u64) -> Result<(), Refusal> {
        let cluster = self.standing(name, false, since)?;
        (cluster.reachable, cluster.since) = (true, index);
        let mut over = Vec::new();
        for model in self.models.values_mut().filter(|m| m.home.as_ref().is_some_and(|home| home.cluster == name)) {
            model.unplaced.clear();
            if model.moving.as_ref().is_some_and(|moving| moving.cause == Cause::Loss) {
                over.extend(call_off(model, index).map(|moving| (model.spec.name.clone(), moving.since)));
            }
        }
        for (model, since) in over {
            self.remember_end(&model, since, Progress::GivenUp(format!("cluster {name} answers again")));
        }
        self.plan += 1;
        self.note(index, format!("cluster {name} answers again"));
        Ok(())
    }

    fn unplaced(&mut self, index: u64, name: &str, loaded_at: u64, reason: &str) -> Result<(), Refusal> {
        let over = || Refusal::Over { what: format!("the search for a place for {name}") };
        let clusters = &self.clusters;
        let known =
            self.models.get_mut(name).filter(|m| m.loaded_at == loaded_at && !m.unloading && m.moving.is_none());
        let model = known.ok_or_else(over)?;
        let served = |home: &crate::state::Home| clusters.get(&home.cluster).is_some_and(|cluster| cluster.reachable);
        if model.home.as_ref().is_some_and(served) {
            return Err(over());
        }
        reason.clone_into(&mut model.unplaced);
        self.note(index, format!("model {name} has no place: {reason}"));
        Ok(())
    }
}
