//! Moves of models and backends to another sub-cluster, make before break.
//!
//! ```text
//! model     begins ─▶ the backends of the new one load it ─▶ switched: new requests go there ─▶ FinishMove: the old copies go
//! backend   begins ─▶ it loads the new one's models ─▶ it gets no more plans ─▶ ReportDrained: bound anew, with a new token
//! ```
//!
//! A plan lists moves; each begins as soon as there is memory for both copies. Nothing is taken away before its
//! successor is ready, and every step is an entry of the log: the next leader of the control group goes on where the
//! last one stopped.

use std::collections::BTreeMap;

use symphony_types::{BackendId, ModelId, SubclusterId, Token};

use crate::effect::{Effect, MoveTrigger};
use crate::epoch_plan::{BackendMove, ModelMove, MoveProgress, Moved, PlanStatus, PlannedMove, WantedMove};
use crate::limits::{ERROR_BYTES_MAX, LOADS_PER_BACKEND_MAX, MOVES_AT_ONCE_MAX};
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::state::{Backend, ClusterState, HolderState};

impl ClusterState {
    /// The number of moves under way.
    #[must_use]
    pub fn moves_under_way(&self) -> usize {
        let models = self.models.values().filter(|m| m.moving.is_some()).count();
        models + self.backends.values().filter(|b| b.moving.is_some()).count()
    }

    /// Advances the moves of the running plans as far as possible. Called after each successful command; most commands
    /// affect no move and return at once.
    pub(crate) fn advance_moves(&mut self, index: u64, effects: &mut Vec<Effect>) {
        if !self.plans.iter().any(|plan| plan.status == PlanStatus::Running) {
            return;
        }
        let Some(trigger) = effects.iter().filter_map(Effect::move_trigger).max() else { return };
        self.advance_all(index, trigger, effects);
    }

    /// Advances all moves under way, and waiting ones as `trigger` allows.
    pub(crate) fn advance_all(&mut self, index: u64, mut trigger: MoveTrigger, effects: &mut Vec<Effect>) {
        // A move that begins may be ready at once, and one that ends may free memory for a waiting one.
        loop {
            let before = effects.len();
            let changed = self.go_on(index, effects) || self.begin_permitted(index, trigger, effects);
            if !changed {
                break;
            }
            trigger = effects[before..].iter().filter_map(Effect::move_trigger).fold(trigger, MoveTrigger::max);
        }
        for plan in self.plans.iter_mut().filter(|plan| plan.status == PlanStatus::Running && plan.is_over()) {
            plan.status = PlanStatus::Done;
            effects.push(Effect::PlanDone { plan: plan.id });
        }
    }

    /// Advances the moves under way by a step. Returns whether any advanced.
    fn go_on(&mut self, index: u64, effects: &mut Vec<Effect>) -> bool {
        let under_way = self.planned(|m| m.progress.under_way_since().is_some());
        let advanced = under_way.into_iter().map(|(_, wanted)| match wanted.what {
            Moved::Model(model) => self.advance_model(index, model, effects),
            Moved::Backend(backend) => self.advance_backend(index, backend, effects),
        });
        advanced.fold(false, |any, advanced| any | advanced)
    }

    /// Begins waiting moves. Returns whether any was begun or cancelled.
    fn begin_permitted(&mut self, index: u64, trigger: MoveTrigger, effects: &mut Vec<Effect>) -> bool {
        let (mut changed, mut without_room) = (false, Vec::new());
        let mut under_way = self.moves_under_way();
        let mut loads = self.loads_by_plans();
        let may_begin = |what: Moved| trigger == MoveTrigger::Room || matches!(what, Moved::Backend(_));
        for (place, wanted) in self.planned(|m| m.progress == MoveProgress::Waiting && may_begin(m.wanted.what)) {
            if under_way >= MOVES_AT_ONCE_MAX {
                break;
            }
            let loads = loads.entry(wanted.to).or_default();
            let loaded_by_all = usize::from(matches!(wanted.what, Moved::Model(_)));
            if *loads + loaded_by_all > LOADS_PER_BACKEND_MAX {
                continue;
            }
            match self.may_begin(&wanted) {
                Ok(()) => {
                    self.begin(index, place, &wanted, effects);
                    under_way += 1;
                    *loads += loaded_by_all;
                }
                Err(refusal @ (Refusal::OutOfMemory { .. } | Refusal::NobodyLeft { .. })) => {
                    without_room.push((place, refusal));
                    continue;
                }
                Err(refusal) => self.end(place, MoveProgress::GivenUp(cut(refusal.to_string())), effects),
            }
            changed = true;
        }
        // A move under way may free memory or leave nothing to serve; nothing else will.
        if !changed && under_way == 0 {
            changed = !without_room.is_empty();
            for (place, refusal) in without_room {
                self.end(place, MoveProgress::GivenUp(cut(refusal.to_string())), effects);
            }
        }
        changed
    }

    /// Models that the backends of each sub-cluster load because of moves.
    fn loads_by_plans(&self) -> BTreeMap<SubclusterId, usize> {
        let mut loads = BTreeMap::new();
        let comes = self.models.values().filter_map(|model| model.moving).filter(|moving| moving.switched.is_none());
        comes.for_each(|moving| *loads.entry(moving.to).or_default() += 1);
        loads
    }

    pub(crate) fn finish_move(&mut self, index: u64, id: ModelId, since: u64, effects: &mut Vec<Effect>) -> Outcome {
        let what = Moved::Model(id);
        let over = Refusal::MoveOver { what: what.to_string(), since };
        let model = self.models.get_mut(&id).ok_or(Refusal::UnknownModel { model: id })?;
        let Some(moving) = model.moving.take_if(|m| m.since == since && m.switched.is_some()) else {
            return Err(over);
        };
        self.forget_released_copies();
        self.settle(what, moving.since, MoveProgress::Done(index), effects);
        Ok(Reply::Done)
    }

    pub(crate) fn cancel_move(&mut self, what: Moved, since: u64, reason: &str, effects: &mut Vec<Effect>) -> Outcome {
        let begun = match what {
            // Once switched, a model counts as being in the new sub-cluster.
            Moved::Model(id) => {
                self.models.get(&id).and_then(|m| m.moving.filter(|m| m.switched.is_none())).map(|m| m.since)
            }
            Moved::Backend(id) => self.backends.get(&id).and_then(|b| b.moving).map(|m| m.since),
        };
        if begun != Some(since) {
            return Err(Refusal::MoveOver { what: what.to_string(), since });
        }
        self.call_off(what, reason.to_owned(), effects);
        Ok(Reply::Done)
    }

    /// Cancels the move of a model or backend, if one is under way.
    pub(crate) fn call_off(&mut self, what: Moved, reason: String, effects: &mut Vec<Effect>) {
        let since = match what {
            Moved::Model(id) => self.models.get_mut(&id).and_then(|m| m.moving.take()).map(|m| m.since),
            Moved::Backend(id) => self.backends.get_mut(&id).and_then(|b| b.moving.take()).map(|m| m.since),
        };
        if let Some(since) = since {
            self.forget_released_copies();
            self.settle(what, since, MoveProgress::GivenUp(cut(reason)), effects);
        }
    }

    /// Ends the move of a removed model or backend.
    pub(crate) fn move_of_nothing(&mut self, what: Moved, since: u64, effects: &mut Vec<Effect>) {
        self.settle(what, since, MoveProgress::GivenUp("it is gone".into()), effects);
    }

    /// A backend on its way has restarted: it is bound to the new sub-cluster or to the one that it asks for.
    pub(crate) fn move_ended_by_restart(
        &mut self,
        index: u64,
        id: BackendId,
        moving: BackendMove,
        effects: &mut Vec<Effect>,
    ) {
        let arrived = self.backends.get(&id).is_some_and(|backend| backend.subcluster == moving.to);
        let end = match arrived {
            true => MoveProgress::Done(index),
            false => MoveProgress::GivenUp("it was restarted".into()),
        };
        self.settle(Moved::Backend(id), moving.since, end, effects);
    }

    /// A backend without new plans has finished its last ones: it is bound to its new sub-cluster.
    pub(crate) fn rebind(&mut self, index: u64, id: BackendId, effects: &mut Vec<Effect>) {
        let Some(backend) = self.backends.get_mut(&id) else { return };
        let Some(moving) = backend.moving.take() else { return };
        backend.subcluster = moving.to;
        for gpu in &mut backend.gpus {
            gpu.binding = Token::new(index);
            effects.push(Effect::GpuBound { gpu: gpu.id, subcluster: moving.to, token: gpu.binding });
        }
        let name = backend.name.clone();
        effects.push(Effect::BackendMoved { backend: id, name, to: moving.to });
        self.forget_released_copies();
        self.settle(Moved::Backend(id), moving.since, MoveProgress::Done(index), effects);
    }

    /// Returns whether it still moves.
    fn advance_model(&mut self, index: u64, id: ModelId, effects: &mut Vec<Effect>) -> bool {
        let Some(model) = self.models.get(&id) else { return false };
        let Some(moving) = model.moving.filter(|moving| moving.switched.is_none()) else { return false };
        let hosts = self.backends.iter().filter(|(_, b)| b.subcluster == moving.to && b.up() && b.duty().takes_work());
        let words: Vec<_> = hosts.map(|(id, backend)| (&backend.name, model.word_of(*id, backend.boot))).collect();
        if let Some((name, error)) = words.iter().find_map(|(name, word)| match word {
            Some(HolderState::Failed(error)) => Some((name, error)),
            _ => None,
        }) {
            let reason = format!("backend {name} could not load it: {error}");
            self.call_off(Moved::Model(id), reason, effects);
            return true;
        }
        if words.is_empty() || !words.iter().all(|(_, word)| word.is_some()) {
            return false;
        }
        let Some(model) = self.models.get_mut(&id) else { return false };
        model.subcluster = moving.to;
        model.moving = Some(ModelMove { switched: Some(index), ..moving });
        let name = model.spec.name.clone();
        effects.push(Effect::ModelSwitched { model: id, name, from: moving.from, to: moving.to });
        true
    }

    /// Returns whether it still moves.
    fn advance_backend(&mut self, index: u64, id: BackendId, effects: &mut Vec<Effect>) -> bool {
        let Some(backend) = self.backends.get(&id).filter(|backend| backend.up()) else { return false };
        let Some(moving) = backend.moving.filter(|moving| moving.retiring.is_none()) else { return false };
        let served = self.models.values().filter(|model| model.subcluster == moving.to);
        let words: Vec<_> = served.map(|model| (&model.spec.name, model.word_of(id, backend.boot))).collect();
        if let Some((name, error)) = words.iter().find_map(|(name, word)| match word {
            Some(HolderState::Failed(error)) => Some((name, error)),
            _ => None,
        }) {
            let reason = format!("it could not load model {name}: {error}");
            self.call_off(Moved::Backend(id), reason, effects);
            return true;
        }
        if !words.iter().all(|(_, word)| word.is_some()) || !self.may_leave(id) {
            return false;
        }
        let Some(backend) = self.backends.get_mut(&id) else { return false };
        backend.moving = Some(BackendMove { retiring: Some(index), ..moving });
        backend.standing.drained = false;
        true
    }

    /// Whether its sub-cluster's models are served without this backend: another one that stays and takes work holds
    /// all of them.
    fn may_leave(&self, id: BackendId) -> bool {
        let Some(home) = self.backends.get(&id).map(|backend| backend.subcluster) else { return false };
        let served: Vec<_> = self.models.values().filter(|model| model.is_served_by(home)).collect();
        let stays = |(other, backend): (&BackendId, &Backend)| {
            let works = *other != id && backend.subcluster == home && backend.up() && backend.duty().takes_work();
            works && backend.moving.is_none() && {
                let ready =
                    |model: &&crate::state::Model| model.word_of(*other, backend.boot) == Some(&HolderState::Ready);
                served.iter().all(ready)
            }
        };
        served.is_empty() || self.backends.iter().any(stays)
    }

    fn may_begin(&self, wanted: &WantedMove) -> Result<(), Refusal> {
        let is_there = |home: SubclusterId, moves: bool| {
            if home == wanted.from && !moves {
                return Ok(());
            }
            Err(Refusal::MoveOutdated { wanted: wanted.to_string() })
        };
        if !self.subclusters.contains_key(&wanted.to) {
            return Err(Refusal::UnknownSubclusterId { subcluster: wanted.to });
        }
        match wanted.what {
            Moved::Model(id) => {
                let model = self.models.get(&id).ok_or(Refusal::UnknownModel { model: id })?;
                is_there(model.subcluster, model.moving.is_some())?;
                self.check_models_fit(wanted.to, &model.spec)
            }
            Moved::Backend(id) => {
                let backend = self.backends.get(&id).ok_or(Refusal::UnknownBackend { backend: id })?;
                is_there(backend.subcluster, backend.moving.is_some())?;
                self.check_backend_fits(backend, &[wanted.to])?;
                if self.may_leave(id) {
                    return Ok(());
                }
                let name = self.subclusters.get(&wanted.from).map_or_else(String::new, |s| s.name.clone());
                Err(Refusal::NobodyLeft { backend: id, subcluster: name })
            }
        }
    }

    fn begin(&mut self, index: u64, place: (usize, usize), wanted: &WantedMove, effects: &mut Vec<Effect>) {
        let WantedMove { what, from, to } = *wanted;
        match what {
            Moved::Model(id) => {
                let Some(model) = self.models.get_mut(&id) else { return };
                model.moving = Some(ModelMove { from, to, since: index, switched: None });
            }
            Moved::Backend(id) => {
                let Some(backend) = self.backends.get(&id) else { return };
                let preloads = self.check_backend_fits(backend, &[from, to]).is_ok();
                let retiring = (!preloads).then_some(index);
                let Some(backend) = self.backends.get_mut(&id) else { return };
                backend.moving = Some(BackendMove { to, since: index, preloads, retiring });
                backend.standing.drained = false;
            }
        }
        effects.push(Effect::MoveBegun { wanted: *wanted });
        self.plans[place.0].moves[place.1].progress = MoveProgress::UnderWay(index);
    }

    /// The moves of running plans in this phase, with their positions.
    fn planned(&self, at: impl Fn(&PlannedMove) -> bool) -> Vec<((usize, usize), WantedMove)> {
        let running = self.plans.iter().enumerate().filter(|(_, plan)| plan.status == PlanStatus::Running);
        running
            .flat_map(|(p, plan)| plan.moves.iter().enumerate().map(move |(m, planned)| ((p, m), planned)))
            .filter(|(_, planned)| at(planned))
            .map(|(place, planned)| (place, planned.wanted))
            .collect()
    }

    fn settle(&mut self, what: Moved, since: u64, end: MoveProgress, effects: &mut Vec<Effect>) {
        let places = self.planned(|m| m.wanted.what == what && m.progress == MoveProgress::UnderWay(since));
        if let Some(&(place, _)) = places.first() {
            self.end(place, end, effects);
        }
    }

    fn end(&mut self, (plan, place): (usize, usize), end: MoveProgress, effects: &mut Vec<Effect>) {
        let planned = &mut self.plans[plan].moves[place];
        effects.push(match &end {
            MoveProgress::GivenUp(reason) => Effect::MoveGivenUp { wanted: planned.wanted, reason: reason.clone() },
            _ => Effect::MoveDone { wanted: planned.wanted },
        });
        planned.progress = end;
    }

    /// The backends that should no longer hold a model have unloaded it.
    pub(crate) fn forget_released_copies(&mut self) {
        for model in self.models.values_mut() {
            let holds = |backend: &Backend| backend.homes().iter().flatten().any(|&home| model.is_held_by(home));
            let released = model.holders.keys().filter(|id| self.backends.get(id).is_none_or(|b| !holds(b))).copied();
            for backend in released.collect::<Vec<_>>() {
                model.holders.remove(&backend);
            }
        }
    }
}

fn cut(mut reason: String) -> String {
    let mut end = reason.len().min(ERROR_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason.truncate(end);
    reason
}
