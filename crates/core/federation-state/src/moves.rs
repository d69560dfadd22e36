//! Moves of models between clusters: make before break.

use crate::command::HomeMove;
use crate::limits::{LEFTOVERS_TOTAL_MAX, MOVES_AT_ONCE_MAX};
use crate::refusal::Refusal;
use crate::state::{Cause, FederationState, Home, Model, Move, PlannedMove, Progress};

impl FederationState {
    /// Begins those moves that can begin; if none can, refuses with the reason of the first.
    pub(crate) fn begin_moves(&mut self, index: u64, moves: &[HomeMove], cause: Cause) -> Result<(), Refusal> {
        let (mut begun, mut first) = (Vec::new(), None);
        for wanted in moves {
            match self.movable(wanted) {
                Ok(()) => begun.extend(self.begin(index, wanted, cause)),
                Err(refusal) => first = first.or(Some(refusal)),
            }
        }
        match first {
            Some(refusal) if begun.is_empty() => return Err(refusal),
            _ if begun.is_empty() => {}
            _ => self.remember_plan(index, cause, begun),
        }
        Ok(())
    }

    /// Checks whether the move could begin now.
    ///
    /// # Errors
    /// Why it could not.
    pub fn movable(&self, wanted: &HomeMove) -> Result<(), Refusal> {
        let HomeMove { model: name, loaded_at, from, to, .. } = wanted;
        let known = self.models.get(name).filter(|model| model.loaded_at == *loaded_at && !model.unloading);
        let model = known.ok_or_else(|| Refusal::UnknownModel { model: name.clone() })?;
        self.known(to)?;
        let cannot = |why: String| Err(Refusal::CannotMove { model: name.clone(), why });
        if let Some(moving) = &model.moving {
            return cannot(format!("is on its way to {} already", moving.to));
        }
        if model.home.as_ref().map(|home| &home.cluster) != from.as_ref() {
            let at = model.home.as_ref().map_or("nowhere", |home| home.cluster.as_str());
            return cannot(format!("is at home in {at}, not where the move expected it"));
        }
        if model.belongs_to(to) {
            return cannot(format!("is at home in {to} already"));
        }
        if model.leftovers.contains_key(to) {
            return cannot(format!("has a copy in {to} that is being let go of; move it once that is gone"));
        }
        if !self.is_reachable(to) {
            return Err(Refusal::Unreachable { cluster: to.clone() });
        }
        let limit = |what: &str, max: usize| Err(Refusal::Limit { what: what.to_owned(), max: max as u64 });
        if self.moves_under_way() >= MOVES_AT_ONCE_MAX {
            return limit("moves under way", MOVES_AT_ONCE_MAX);
        }
        // Every copy may have to be unloaded one day, and only a move adds one. So this count also covers completed and
        // cancelled moves, changed homes, and unloaded models.
        let copies = |model: &Model| {
            model.leftovers.len() + usize::from(model.home.is_some()) + usize::from(model.moving.is_some())
        };
        if self.models.values().map(copies).sum::<usize>() >= LEFTOVERS_TOTAL_MAX {
            return limit("copies to let go of", LEFTOVERS_TOTAL_MAX);
        }
        Ok(())
    }

    fn begin(&mut self, index: u64, wanted: &HomeMove, cause: Cause) -> Option<PlannedMove> {
        let HomeMove { model: name, to, subcluster, .. } = wanted;
        let model = self.models.get_mut(name)?;
        model.moving = Some(Move { to: to.clone(), subcluster: subcluster.clone(), since: index, cause });
        model.unplaced.clear();
        let from = model.home.as_ref().map(|home| home.cluster.clone());
        let words = from.as_ref().map_or_else(String::new, |from| format!(" from {from}"));
        self.note(index, format!("model {name} goes{words} to {to} ({})", cause.label()));
        Some(PlannedMove { model: name.clone(), from, to: to.clone(), progress: Progress::UnderWay })
    }

    pub(crate) fn loaded(&mut self, index: u64, name: &str, since: u64) -> Result<(), Refusal> {
        let model = self.moving(name, since)?;
        let Some(Move { to, subcluster, .. }) = model.moving.take() else { return Ok(()) };
        if let Some(old) = model.home.take() {
            model.leftovers.insert(old.cluster, index);
        }
        model.home = Some(Home { cluster: to.clone(), subcluster, since: index });
        model.unplaced.clear();
        self.plan += 1;
        self.remember_end(name, since, Progress::Done(index));
        self.note(index, format!("model {name} is at home in {to}"));
        Ok(())
    }

    pub(crate) fn give_up(&mut self, index: u64, name: &str, since: u64, reason: &str) -> Result<(), Refusal> {
        let model = self.moving(name, since)?;
        let to = call_off(model, index).map(|moving| moving.to).unwrap_or_default();
        if model.home.is_none() {
            reason.clone_into(&mut model.unplaced);
        }
        self.remember_end(name, since, Progress::GivenUp(reason.to_owned()));
        self.note(index, format!("model {name} does not go to {to}: {reason}"));
        Ok(())
    }

    pub(crate) fn copy_gone(&mut self, index: u64, name: &str, cluster: &str, since: u64) -> Result<(), Refusal> {
        let over = || Refusal::Over { what: format!("the copy of {name} in {cluster} since {since}") };
        let model = self.models.get_mut(name).ok_or_else(over)?;
        if model.home.as_ref().is_some_and(|home| home.cluster == cluster && home.since == since) {
            model.home = None;
            self.plan += 1;
            self.note(index, format!("model {name} is gone from {cluster}, where it was at home"));
            return Ok(());
        }
        if model.leftovers.get(cluster) != Some(&since) {
            return Err(over());
        }
        model.leftovers.remove(cluster);
        let gone = model.unloading && model.leftovers.is_empty();
        self.note(index, format!("the copy of {name} in {cluster} is gone"));
        if gone {
            self.models.remove(name);
        }
        Ok(())
    }

    /// The model whose move began at `since`.
    fn moving(&mut self, name: &str, since: u64) -> Result<&mut Model, Refusal> {
        let over = || Refusal::Over { what: format!("the move of {name} that began at {since}") };
        let model = self.models.get_mut(name).ok_or_else(over)?;
        if model.moving.as_ref().is_some_and(|moving| moving.since == since) { Ok(model) } else { Err(over()) }
    }
}

/// Cancels a move: the copy at its target must be unloaded. Returns the move.
pub(crate) fn call_off(model: &mut Model, index: u64) -> Option<Move> {
    let moving = model.moving.take()?;
    model.leftovers.insert(moving.to.clone(), index);
    Some(moving)
}

#[cfg(test)]
mod tests {
    use symphony_replicated::{ModelSource, ModelSpec};
    use symphony_types::{OperationId, RequestValue, Signature};

    use super::*;
    use crate::state::Cluster;

    /// As many models with a home and leftovers as make this number of copies, and one without any copy.
    fn with_copies(copies: usize) -> FederationState {
        let clusters: Vec<String> = (0..crate::limits::CLUSTERS_MAX).map(|n| format!("c{n:02}")).collect();
        let mut state = FederationState { applied_index: 9, ..FederationState::default() };
        for name in &clusters {
            let cluster = Cluster { control: vec![], kinds: Default::default(), reachable: true, since: 1 };
            state.clusters.insert(name.clone(), cluster);
        }
        let mut left = copies;
        for n in 0.. {
            let name = format!("m{n:04}");
            let spec = ModelSpec {
                name: name.clone(),
                subcluster: String::new(),
                slo_ns: 1,
                source: ModelSource::Emulated,
                signature: Signature { inputs: vec![], outputs: vec![] },
                transforms: Default::default(),
                profiles: Default::default(),
                policy: Default::default(),
                value: RequestValue::ONE,
            };
            let here = left.min(clusters.len());
            let home = |cluster: &String| Home { cluster: cluster.clone(), subcluster: "s".into(), since: 3 };
            let model = Model {
                spec,
                wanted_mrps: 0,
                first_home: String::new(),
                operation: OperationId::new(1),
                loaded_at: 2,
                home: clusters[..here].first().map(home),
                moving: None,
                leftovers: clusters[..here].iter().skip(1).map(|cluster| (cluster.clone(), 3)).collect(),
                unloading: false,
                unplaced: String::new(),
            };
            state.models.insert(name, model);
            if here == 0 {
                return state;
            }
            left -= here;
        }
        state
    }

    #[test]
    fn unloading_everything_leaves_no_more_copies_than_a_snapshot_holds() {
        let mut state = with_copies(LEFTOVERS_TOTAL_MAX - 1);
        let last = state.models.keys().next_back().unwrap().clone();
        let wanted = |state: &FederationState, model: &str| HomeMove {
            model: model.into(),
            loaded_at: 2,
            from: state.models[model].home.as_ref().map(|home| home.cluster.clone()),
            to: "c63".into(),
            subcluster: "s".into(),
        };
        assert_eq!(state.begin_moves(10, &[wanted(&state, &last)], Cause::Place), Ok(()));
        let full = with_copies(LEFTOVERS_TOTAL_MAX);
        let last = full.models.keys().next_back().unwrap();
        assert!(matches!(full.movable(&wanted(&full, last)), Err(Refusal::Limit { .. })));
        let names: Vec<_> = state.models.keys().cloned().collect();
        (11..).zip(&names).for_each(|(index, name)| {
            state.unload(index, name).unwrap();
            state.applied_index = index;
        });
        assert_eq!(state.models.values().map(|model| model.leftovers.len()).sum::<usize>(), LEFTOVERS_TOTAL_MAX);
        assert_eq!(crate::invariants::check(&state), Ok(()));
    }
}
