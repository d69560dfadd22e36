//! The models that a lead serves: which queue each waits in, its own or one that its family shares.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use symphony_protocol::view::{ModelView, View};
use symphony_scheduler::{ClassProfiles, DataDelay, Delays, ModelQueueConfig};
use symphony_types::{BackendId, GpuClass, ModelId, Nanos};

use super::{LeadTask, LinkedBackend};
use crate::lead::families::{SharedQueue, shared_queues};
use crate::lead::servable::servable;
use crate::lead::served_as::ServedAs;
use crate::links::backend::Usage;
use crate::workers::messages::{Member, ModelMessage, NewQueue};
use crate::workers::offer_board::SUBCLUSTER_MODELS_MAX;

/// The most waiting requests of one model.
const MODEL_REQUESTS_MAX: usize = 1 << 16;

/// A served model: what was sent to its queue.
pub(super) struct ServedModel {
    pub(super) item_bytes: u64,
    how: ServedAs,
    /// The SLO that its queue goes by.
    pub(super) queue_slo: Nanos,
    /// The delay that was last sent to the model.
    pub(super) sent: DataDelay,
}

impl LeadTask {
    pub(super) fn apply_models(&mut self, view: &View) {
        let mut gone: Vec<_> = self.models.keys().copied().collect();
        gone.retain(|model| view.models.get(model).is_none_or(|m| !m.is_served_by(self.id)));
        for model in gone {
            self.stop_serving(model);
        }
        let served = self.served.iter().filter_map(|(&id, served)| Some((id, served.how, view.models.get(&id)?)));
        let changed: Vec<_> = served.filter(|(_, how, model)| *how != ServedAs::of(model)).collect();
        for (id, _, model) in changed {
            let is_shared = self.shared.iter().any(|queue| queue.has(id));
            match self.served.get_mut(&id).filter(|_| is_shared) {
                // Another queue follows, if it makes a difference to those that share it.
                Some(served) => served.how = ServedAs::of(model),
                None => self.change(id, model),
            }
        }
        let holdings: Vec<_> = self.backends.iter().map(|(&id, backend)| backend.holdings(view, id)).collect();
        let served = self.models.keys().copied().collect();
        let waiting: Vec<_> = view
            .models
            .iter()
            .filter(|(id, model)| model.is_served_by(self.id) && !self.models.contains_key(id))
            .map(|(&id, _)| id)
            .collect();
        for id in servable(&served, waiting, &holdings) {
            self.serve(id, &view.models[&id]);
        }
    }

    fn stop_serving(&mut self, model: ModelId) {
        self.models.remove(&model);
        self.served.remove(&model);
        self.shared.iter_mut().for_each(|queue| queue.leave(model));
        self.workers.loads.forget(model);
        self.learner().remove_model(model);
        self.workers.send_to_all(|| ModelMessage::Remove { model });
    }

    fn serve(&mut self, id: ModelId, model: &ModelView) {
        let Some(profiles) = self.profiles(model) else {
            tracing::warn!(model = %model.spec.name, "no profile for every GPU kind of the sub-cluster; not served");
            return;
        };
        for class in GpuClass::all() {
            if let Some(profile) = profiles.get(class) {
                self.learner().add_model(id, class, profile.clone());
            }
        }
        let Some((ordinal, config)) = self.place(id, model, profiles) else { return };
        let counts = self.workers.loads.of_model(id);
        let name = model.spec.name.as_str().into();
        self.workers.of_model(id.get()).push(ModelMessage::Add { model: id, name, ordinal, config, counts });
        tracing::info!(model = %model.spec.name, policy = %model.spec.policy, subcluster = %self.id, "serves");
    }

    /// The SLO, policy or value of a served model is another one.
    fn change(&mut self, id: ModelId, model: &ModelView) {
        let Some(profiles) = self.profiles(model) else { return };
        let Some((ordinal, config)) = self.place(id, model, profiles) else { return };
        self.workers.of_model(id.get()).push(ModelMessage::Change { model: id, ordinal, config });
        let (slo_ms, policy) = (model.spec.slo.as_millis_f64(), &model.spec.policy);
        tracing::info!(model = %model.spec.name, slo_ms, %policy, subcluster = %self.id, "serves it otherwise");
    }

    /// An ordinal for the model's own queue, and how that is made.
    fn place(
        &mut self,
        id: ModelId,
        model: &ModelView,
        profiles: ClassProfiles,
    ) -> Option<(u32, Box<ModelQueueConfig>)> {
        let ordinal = self.free_ordinal(id, model)?;
        let how = ServedAs::of(model);
        Some((ordinal, self.queue_config((id, model), ordinal, how, profiles)))
    }

    /// A free ordinal, which tells the rank worker which model worker has the queue.
    fn free_ordinal(&mut self, id: ModelId, model: &ModelView) -> Option<u32> {
        let workers = self.workers.models.len() as u32;
        let taken: BTreeSet<_> = self.models.values().copied().collect();
        // A free ordinal is reused as late as possible: offers and grants of its former model may still be under way.
        let places = SUBCLUSTER_MODELS_MAX as u32 / workers;
        let mut ordinals =
            (0..places).map(|k| self.queues_ever.wrapping_add(k) % places * workers + id.get() % workers);
        let Some(ordinal) = ordinals.find(|ordinal| !taken.contains(ordinal)) else {
            tracing::error!(model = %model.spec.name, limit = SUBCLUSTER_MODELS_MAX, "too many models; not served");
            return None;
        };
        self.workers.ordinals.write().unwrap_or_else(PoisonError::into_inner).insert(ordinal, id);
        self.queues_ever = self.queues_ever.wrapping_add(1);
        Some(ordinal)
    }

    /// How the queue of this ordinal is made; the model waits in it from here on.
    fn queue_config(
        &mut self,
        (id, model): (ModelId, &ModelView),
        ordinal: u32,
        queue: ServedAs,
        profiles: ClassProfiles,
    ) -> Box<ModelQueueConfig> {
        let item_bytes = model.spec.signature.inputs.iter().map(|input| input.item_bytes() as u64).sum();
        let data = self.data_delays.of(item_bytes, queue.slo);
        let how = ServedAs::of(model);
        self.served.insert(id, ServedModel { item_bytes, how, queue_slo: queue.slo, sent: data });
        self.models.insert(id, ordinal);
        Box::new(ModelQueueConfig {
            profiles,
            slo: queue.slo,
            policy: queue.policy,
            delays: Delays { data, ..self.config.delays },
            requests_max: MODEL_REQUESTS_MAX,
        })
    }

    /// Lets models of a family share a queue if every backend in use runs them through their trunk, and gives those
    /// that no longer do queues of their own. What waits for them waits on.
    pub(super) fn regroup(&mut self, view: &View, usages: &[(BackendId, Usage)]) {
        let now_or_next = |(id, next): &&(BackendId, Usage)| {
            *next == Usage::Use || self.backends.get(id).is_some_and(|linked| *linked.usage.borrow() == Usage::Use)
        };
        let in_use = usages.iter().filter(now_or_next).filter_map(|(id, _)| self.backends.get(id));
        let hosting: Vec<_> = in_use.map(|linked| &linked.hosting).collect();
        // A policy for the whole sub-cluster plans by tables of whole models. Without a GPU nothing is planned.
        if self.workers.policy_fault.is_some() || hosting.is_empty() {
            return;
        }
        let served = view.models.iter().filter(|(id, _)| self.models.contains_key(id)).map(|(&id, model)| (id, model));
        let wanted = shared_queues(served, &hosting, self.workers.models.len() as u32, &self.kinds);
        if wanted == self.shared {
            return;
        }
        let (kept, ended): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.shared).into_iter().partition(|queue| wanted.contains(queue));
        let begun: Vec<_> = wanted.iter().filter(|queue| !kept.contains(queue)).cloned().collect();
        self.shared = wanted;
        let mut queues = Vec::new();
        for queue in begun {
            match self.new_shared_queue(view, &queue) {
                Some(new) => queues.push(new),
                None => self.shared.retain(|one| *one != queue),
            }
        }
        let mut alone: Vec<_> = ended.iter().flat_map(SharedQueue::members).collect();
        alone.retain(|id| self.models.contains_key(id) && !self.shared.iter().any(|queue| queue.has(*id)));
        for id in alone {
            match view.models.get(&id).and_then(|model| self.new_own_queue(id, model)) {
                Some(queue) => queues.push(queue),
                // Its queue goes with the others. It is served again when that is possible, as a model that comes.
                None => self.stop_serving(id),
            }
        }
        let mut by_worker: BTreeMap<u32, Vec<NewQueue>> = BTreeMap::new();
        for queue in queues {
            by_worker.entry(queue.ordinal % self.workers.models.len() as u32).or_default().push(queue);
        }
        for (worker, queues) in by_worker {
            self.workers.of_model(worker).push(ModelMessage::Regroup { queues });
        }
    }

    fn new_shared_queue(&mut self, view: &View, queue: &SharedQueue) -> Option<NewQueue> {
        let models: Vec<_> = queue.members().filter_map(|id| Some((id, view.models.get(&id)?))).collect();
        let &(first, model) = models.first()?;
        let families = queue.profiles(&view.models, &self.kinds);
        if families.is_empty() {
            return None;
        }
        let ordinal = self.free_ordinal(first, model)?;
        let profiles: ClassProfiles = families.iter().map(|(class, family)| (*class, family.worst().clone())).collect();
        let mut config = None;
        for &member in &models {
            config = Some(self.queue_config(member, ordinal, queue.how, profiles.clone()));
        }
        let names: Vec<_> = models.iter().map(|(_, model)| model.spec.name.as_str()).collect();
        tracing::info!(models = names.join(", "), trunk = %queue.trunk, subcluster = %self.id, "share a queue");
        let members = models.into_iter().map(|(id, model)| self.member(id, model)).collect();
        Some(NewQueue { members, ordinal, config: config?, families })
    }

    fn new_own_queue(&mut self, id: ModelId, model: &ModelView) -> Option<NewQueue> {
        // Another kind of GPUs may be linked since, without a profile for it: the model is served, and stays so.
        let profiles = self.known_profiles(model);
        profiles.iter().next()?;
        // What was learnt of it is not in these.
        for class in GpuClass::all() {
            if let Some(profile) = profiles.get(class) {
                self.learner().add_model(id, class, profile.clone());
            }
        }
        let (ordinal, config) = self.place(id, model, profiles)?;
        tracing::info!(model = %model.spec.name, subcluster = %self.id, "has a queue of its own");
        Some(NewQueue { members: vec![self.member(id, model)], ordinal, config, families: Vec::new() })
    }

    fn member(&self, id: ModelId, model: &ModelView) -> Member {
        Member { id, name: model.spec.name.as_str().into(), counts: self.workers.loads.of_model(id) }
    }

    /// The model's profiles on all GPU kinds seen so far; none unless every kind that is linked now has one.
    fn profiles(&self, model: &ModelView) -> Option<ClassProfiles> {
        let profiles = self.known_profiles(model);
        let mut classes = self.backends.values().flat_map(LinkedBackend::classes).peekable();
        classes.peek()?;
        classes.all(|class| profiles.get(class).is_some()).then_some(profiles)
    }

    /// The model's profiles on those GPU kinds seen so far that it has one for.
    fn known_profiles(&self, model: &ModelView) -> ClassProfiles {
        let of_class =
            |class: GpuClass| Some((class, model.spec.profiles.get(self.kinds.get(class.index())?)?.latency.clone()));
        GpuClass::all().filter_map(of_class).collect()
    }
}
