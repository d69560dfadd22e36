//! Commands about backends and their GPUs.

use symphony_types::{BackendId, BootId, GpuId, SubclusterId, Token};

use crate::command::{BackendRegistration, GpuOffer};
use crate::effect::Effect;
use crate::epoch_plan::{BackendMove, Moved};
use crate::leader_choice::Preference;
use crate::limits::{BACKENDS_MAX, GPUS_MAX, SUBCLUSTERS_MAX};
use crate::models::{self, MemoryNeed};
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::state::{Backend, ClusterState, Gpu, Standing, Subcluster};

const WHAT: &str = "backend";

impl ClusterState {
    pub(crate) fn register_backend(
        &mut self,
        index: u64,
        registration: &BackendRegistration,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let BackendRegistration { name, boot, .. } = registration;
        let known = self.backends.iter().find(|(_, b)| b.name == *name).map(|(&id, b)| (id, b));
        if let Some((id, backend)) = known {
            if backend.boot == *boot {
                if !self.says_the_same(backend, registration) {
                    return Err(Refusal::Changed { what: WHAT.into(), name: name.clone(), boot: *boot });
                }
                if backend.up() {
                    return Ok(backend_reply(id, backend));
                }
            }
            if backend.previous_boot == Some(*boot) {
                let (what, name) = (WHAT.into(), name.clone());
                return Err(Refusal::StaleBoot { what, name, named: *boot, current: backend.boot });
            }
        }
        self.check_room(known, registration)?;
        let target = self.where_it_belongs(known.map(|(_, backend)| backend), registration);
        if let Some(subcluster) = target {
            let held = self.models.values().filter(|model| model.is_held_by(subcluster));
            let models: Vec<_> = held.map(|model| &model.spec).collect();
            for gpu in &registration.gpus {
                let need = models::memory_need(&models, &gpu.kind, &registration.subcluster)?;
                need.fits(&registration.subcluster, &gpu.kind, gpu.memory_bytes)?;
            }
        }

        // All checks have passed; from here on the state changes.
        let previous = known.map(|(id, backend)| (id, backend.clone()));
        let load_bytes_per_s = known.map_or(0, |(_, backend)| backend.load_bytes_per_s);
        let subcluster = target.unwrap_or_else(|| self.create_subcluster(index, registration, effects));
        let moved = previous.as_ref().and_then(|(id, old)| Some((*id, old.moving?, old.boot)));
        let moving = moved.filter(|&(.., moved_boot)| moved_boot == *boot).map(|(_, moving, _)| moving);
        let (backend, previous_boot, old_gpus, standing) = match previous {
            Some((id, old)) if old.boot == *boot => (id, old.previous_boot, old.gpus, old.standing),
            Some((id, old)) => {
                // The copies that the old boot had loaded are gone with it.
                for model in self.models.values_mut() {
                    model.holders.remove(&id);
                }
                (id, Some(old.boot), old.gpus, old.standing.after_restart())
            }
            None => {
                self.forget_a_dead_backend_if_full(effects);
                self.last.backend += 1;
                (BackendId::new(self.last.backend), None, Vec::new(), Standing::default())
            }
        };
        effects.push(Effect::BackendUp { backend, name: name.clone(), boot: *boot });
        let gpus = self.bind(index, subcluster, &old_gpus, &registration.gpus, effects);
        let entry = Backend {
            name: name.clone(),
            boot: *boot,
            previous_boot,
            down_since: None,
            exec_addr: registration.exec_addr.clone(),
            asked_subcluster: registration.subcluster.clone(),
            subcluster,
            moving,
            executor: registration.executor.clone(),
            gpus,
            standing,
            load_bytes_per_s,
        };
        let reply = backend_reply(backend, &entry);
        self.backends.insert(backend, entry);
        // A new boot has nothing to finish in the old sub-cluster.
        if let Some((_, moving, moved_boot)) = moved
            && moved_boot != *boot
        {
            self.move_ended_by_restart(index, backend, moving, effects);
        }
        Ok(reply)
    }

    pub(crate) fn backend_down(
        &mut self,
        index: u64,
        backend: BackendId,
        boot: BootId,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let entry = self.backends.get_mut(&backend).ok_or(Refusal::UnknownBackend { backend })?;
        if entry.boot != boot {
            let (what, name) = (WHAT.into(), entry.name.clone());
            return Err(Refusal::StaleBoot { what, name, named: boot, current: entry.boot });
        }
        if entry.up() {
            entry.down_since = Some(index);
            effects.push(Effect::BackendDown { backend, name: entry.name.clone(), boot });
        }
        Ok(Reply::Done)
    }

    fn says_the_same(&self, backend: &Backend, registration: &BackendRegistration) -> bool {
        let offer = |g: &Gpu| GpuOffer { kind: g.kind.clone(), memory_bytes: g.memory_bytes };
        backend.exec_addr == registration.exec_addr
            && backend.asked_subcluster == registration.subcluster
            && backend.executor == registration.executor
            && backend.gpus.iter().map(offer).eq(registration.gpus.iter().cloned())
    }

    /// The sub-cluster of a registering backend; `None` if it does not exist yet. A plan's decision stands, unless the
    /// backend asks for another sub-cluster than before. A new boot goes directly to the target of a move under way,
    /// since it has nothing left to finish; a backend that was only loading stays.
    fn where_it_belongs(&self, known: Option<&Backend>, registration: &BackendRegistration) -> Option<SubclusterId> {
        match known.filter(|backend| backend.asked_subcluster == registration.subcluster) {
            None => self.subcluster_named(&registration.subcluster).map(|(id, _)| id),
            Some(Backend { boot, moving: Some(BackendMove { to, retiring: Some(_), .. }), .. })
                if *boot != registration.boot =>
            {
                Some(*to)
            }
            Some(backend) => Some(backend.subcluster),
        }
    }

    fn check_room(
        &self,
        known: Option<(BackendId, &Backend)>,
        registration: &BackendRegistration,
    ) -> Result<(), Refusal> {
        let limit = |what: &str, max: usize| Err(Refusal::Limit { what: what.into(), max: max as u64 });
        if known.is_none() && self.backends.len() >= BACKENDS_MAX && self.longest_dead().is_none() {
            return limit("living backends", BACKENDS_MAX);
        }
        let others = |(id, _): &(&BackendId, &Backend)| known.is_none_or(|(own, _)| **id != own);
        let registered: usize = self.backends.iter().filter(others).map(|(_, b)| b.gpus.len()).sum();
        if registered + registration.gpus.len() > GPUS_MAX {
            return limit("GPUs", GPUS_MAX);
        }
        if self.subclusters.len() >= SUBCLUSTERS_MAX && self.subcluster_named(&registration.subcluster).is_none() {
            return limit("sub-clusters", SUBCLUSTERS_MAX);
        }
        Ok(())
    }

    fn create_subcluster(
        &mut self,
        index: u64,
        registration: &BackendRegistration,
        effects: &mut Vec<Effect>,
    ) -> SubclusterId {
        self.last.subcluster += 1;
        let subcluster = SubclusterId::new(self.last.subcluster);
        let name = registration.subcluster.clone();
        effects.push(Effect::SubclusterCreated { subcluster, name: name.clone() });
        let entry = Subcluster { name, leader: None, token: Token::new(index), standbys: Vec::new(), successor: None };
        self.subclusters.insert(subcluster, entry);
        if self.nodes.values().any(|n| n.up) {
            let preference = Preference { avoid: registration.avoid, last_choice: None };
            let mut counts = self.lead_counts();
            self.place(&mut counts, index, subcluster, preference, effects);
            self.refresh_standbys();
        }
        subcluster
    }

    /// Binds the offered GPUs. The index is the token of each, so that messages of leaders to an earlier boot or under
    /// an earlier sub-cluster are refused.
    fn bind(
        &mut self,
        index: u64,
        subcluster: SubclusterId,
        old: &[Gpu],
        offers: &[GpuOffer],
        effects: &mut Vec<Effect>,
    ) -> Vec<Gpu> {
        let binding = Token::new(index);
        let mut gpus: Vec<Gpu> = Vec::with_capacity(offers.len());
        for (place, offer) in offers.iter().enumerate() {
            let kept = old.get(place).filter(|g| g.kind == offer.kind).map(|g| g.id);
            let id = kept.unwrap_or_else(|| {
                self.last.gpu += 1;
                GpuId::new(self.last.gpu)
            });
            effects.push(Effect::GpuBound { gpu: id, subcluster, token: binding });
            gpus.push(Gpu { id, kind: offer.kind.clone(), memory_bytes: offer.memory_bytes, binding });
        }
        let gone = old.iter().filter(|g| gpus.iter().all(|kept| kept.id != g.id));
        effects.extend(gone.map(|g| Effect::GpuReleased { gpu: g.id }));
        gpus
    }

    fn longest_dead(&self) -> Option<BackendId> {
        let dead = self.backends.iter().filter_map(|(&id, b)| b.down_since.map(|since| (since, id)));
        dead.min().map(|(_, id)| id)
    }

    fn forget_a_dead_backend_if_full(&mut self, effects: &mut Vec<Effect>) {
        if self.backends.len() < BACKENDS_MAX {
            return;
        }
        let Some(backend) = self.longest_dead() else { return };
        for model in self.models.values_mut() {
            model.holders.remove(&backend);
        }
        if let Some(entry) = self.backends.remove(&backend) {
            effects.push(Effect::BackendForgotten { backend, name: entry.name });
            effects.extend(entry.gpus.iter().map(|g| Effect::GpuReleased { gpu: g.id }));
            if let Some(moving) = entry.moving {
                self.move_of_nothing(Moved::Backend(backend), moving.since, effects);
            }
        }
    }
}

impl MemoryNeed {
    /// Whether a GPU has enough memory; 0 bytes mean no limit.
    pub(crate) fn fits(self, subcluster: &str, kind: &str, memory_bytes: u64) -> Result<(), Refusal> {
        let needed_bytes = self.bytes();
        if memory_bytes == 0 || needed_bytes <= memory_bytes {
            return Ok(());
        }
        let (subcluster, kind) = (subcluster.to_owned(), kind.to_owned());
        Err(Refusal::OutOfMemory { subcluster, kind, needed_bytes, memory_bytes })
    }
}

fn backend_reply(id: BackendId, backend: &Backend) -> Reply {
    Reply::Backend {
        backend: id,
        subcluster: backend.subcluster,
        gpus: backend.gpus.iter().map(|g| g.id).collect(),
        token: backend.gpus.iter().map(|g| g.binding).max().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;

    fn registration(name: &str) -> Command {
        Command::RegisterBackend(BackendRegistration {
            name: name.into(),
            boot: BootId::new(1),
            exec_addr: "host:1".into(),
            subcluster: "s".into(),
            executor: "emulated".into(),
            gpus: vec![GpuOffer { kind: "cpu".into(), memory_bytes: 0 }],
            avoid: None,
        })
    }

    #[test]
    fn the_backend_that_is_dead_for_longest_makes_room() {
        let mut state = ClusterState::default();
        assert!(state.apply(1, &registration("b1")).outcome.is_ok());
        // The other 4095 are inserted directly: as many commands would take minutes with the invariants on.
        let first = state.backends[&BackendId::new(1)].clone();
        for id in 2..=BACKENDS_MAX as u32 {
            let gpus = vec![Gpu { id: GpuId::new(id), ..first.gpus[0].clone() }];
            state.backends.insert(BackendId::new(id), Backend { name: format!("b{id}"), gpus, ..first.clone() });
        }
        (state.last.backend, state.last.gpu) = (BACKENDS_MAX as u32, BACKENDS_MAX as u32);

        let full = state.apply(2, &registration("one-more")).outcome;
        assert_eq!(full, Err(Refusal::Limit { what: "living backends".into(), max: BACKENDS_MAX as u64 }));
        for (index, id) in [(3, 7), (4, 5)] {
            let down = Command::BackendDown { backend: BackendId::new(id), boot: BootId::new(1) };
            assert!(state.apply(index, &down).outcome.is_ok());
        }
        let effects = state.apply(5, &registration("one-more")).effects;
        let forgotten = Effect::BackendForgotten { backend: BackendId::new(7), name: "b7".into() };
        assert_eq!(effects[..2], [forgotten, Effect::GpuReleased { gpu: GpuId::new(7) }]);
        assert!(state.backends.contains_key(&BackendId::new(5)), "one was enough");
    }
}
