//! The load on tapes: models as they were configured, GPUs, and the requests that arrived, to be played under other
//! policies; and what became of them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use symphony_scheduler::{
    ClassProfiles, ClusterAction, ClusterActions, ClusterInput, ClusterModel, GPUS_MAX, MODELS_MAX, ModelAction,
    ModelActions, ModelInput, ModelQueueConfig, RankInput, Request,
};
use symphony_types::{FamilyProfile, GPU_CLASSES_MAX, GpuClass, GpuId, ModelId, Nanos, Time};

use crate::codec::{Coded as _, Source};
use crate::outcomes::{Outcomes, Which};
use crate::record::{ObjectConfig, Record, TapeEnd};
use crate::recorded::{RecordedModel, RecordedOutcome, RecordedRequest};
use crate::{OBJECTS_MAX, Tape, TapeError, TapeOrigin};

/// The load of one lead, from the tapes of its workers.
#[derive(Clone, Debug, Default)]
pub struct RecordedLoad {
    origin: Option<TapeOrigin>,
    models: BTreeMap<ModelId, RecordedModel>,
    /// By class: GPUs when there were most.
    gpus: [u32; GPU_CLASSES_MAX],
    complete_until: Option<Time>,
}

impl RecordedLoad {
    /// Adds the load of one more tape.
    ///
    /// # Errors
    /// If the tape is damaged or invalid, or of another lead than those before; a tape that ends early is not an error.
    pub fn add(&mut self, tape: &Tape<'_>) -> Result<(), TapeError> {
        let got = tape.header().origin;
        let origin = *self.origin.get_or_insert(got);
        if got != origin {
            let (subcluster, token) = (origin.subcluster, origin.token);
            let (got_subcluster, got_token) = (got.subcluster, got.token);
            return Err(TapeError::AnotherLead { subcluster, token, got_subcluster, got_token });
        }
        let (objects, slots, gpus) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let by_class = [0; GPU_CLASSES_MAX];
        let outcomes = Outcomes::default();
        let mut reading = Reading { load: self, objects, slots, gpus, by_class, most: 0, last: None, outcomes };
        for record in tape.records() {
            let (offset, record) = record?;
            reading.record(offset, record)?;
        }
        for model in self.models.values_mut() {
            model.requests.sort_by_key(|request| request.at);
        }
        Ok(())
    }

    /// Models by id, also those without requests.
    #[must_use]
    pub const fn models(&self) -> &BTreeMap<ModelId, RecordedModel> {
        &self.models
    }

    /// When the first tape with requests ended before its lead did, since it was full or its disk too slow: of later
    /// requests some are missing. `None` if all could be read.
    #[must_use]
    pub const fn complete_until(&self) -> Option<Time> {
        self.complete_until
    }

    /// GPUs by class when there were most; none without the tape of a rank or a policy worker.
    pub fn gpus(&self) -> impl Iterator<Item = (GpuClass, u32)> {
        GpuClass::all().zip(self.gpus).filter(|&(_, gpus)| gpus > 0)
    }

    /// When the first request arrived.
    #[must_use]
    pub fn begin(&self) -> Option<Time> {
        self.models.values().filter_map(|model| model.requests.first()).map(|request| request.at).min()
    }
}

/// One tape while it is read.
struct Reading<'a> {
    load: &'a mut RecordedLoad,
    /// Whose queue an object is: a model's, or that of models that share a trunk, whose requests name their model.
    objects: BTreeMap<u32, Vec<ModelId>>,
    /// Which model a policy for the whole sub-cluster knows by a number.
    slots: BTreeMap<u32, Slot>,
    gpus: BTreeMap<GpuId, GpuClass>,
    /// How many of them are of each class.
    by_class: [u32; GPU_CLASSES_MAX],
    most: usize,
    /// The last decision about requests.
    last: Option<Time>,
    outcomes: Outcomes,
}

/// A model of a policy for the whole sub-cluster.
struct Slot {
    model: ModelId,
    name: String,
    /// The reply delay that the policy was given first: lateness comes on top of it later.
    reply: Option<Nanos>,
}

impl Reading<'_> {
    fn record(&mut self, offset: usize, record: Record<'_>) -> Result<(), TapeError> {
        if let Record::ModelStep { now, .. } | Record::ClusterStep { now, .. } = &record {
            self.last = Some(*now);
        }
        match record {
            Record::Begin { object, config: ObjectConfig::Model { model, name, config, .. } } => {
                self.objects.insert(object, vec![model]);
                let ModelQueueConfig { profiles, slo, delays, .. } = *config;
                self.introduce(offset, model, name, ClusterModel::new(profiles, slo).with_delays(delays))?;
            }
            Record::Begin { object, config: ObjectConfig::Family { models, config, profiles, .. } } => {
                self.introduce_family(offset, &models, &config, &profiles)?;
                self.objects.insert(object, models.into_iter().map(|(model, _)| model).collect());
            }
            Record::Begin { config: ObjectConfig::Ranker { gpus, .. }, .. } => {
                if gpus as usize > GPUS_MAX {
                    return Err(TapeError::NoSuch { offset, what: "number of GPUs", got: gpus.into() });
                }
                (0..gpus).for_each(|gpu| self.add_gpu(GpuId::new(gpu), GpuClass::FIRST));
            }
            Record::Profile { object, class, profile } => {
                for model in self.models_of(offset, object)? {
                    self.model(offset, object, model)?.known.profiles.set(class, profile.clone());
                }
            }
            Record::DataDelay { object, data } => {
                for model in self.models_of(offset, object)? {
                    self.model(offset, object, model)?.known.delays.data = data;
                }
            }
            Record::ModelStep { object, now, input, actions } => {
                self.model_step(offset, object, (now, input), actions)?;
            }
            Record::RankStep { input: RankInput::Add { gpu, class, .. }, .. } if (gpu.get() as usize) < GPUS_MAX => {
                self.add_gpu(gpu, class);
            }
            Record::RankStep { input: RankInput::Remove(gpu), .. } => self.remove_gpu(gpu),
            Record::ClusterModel { slot, model, name, .. } => {
                self.slots.insert(slot, Slot { model, name, reply: None });
                if self.slots.len() > OBJECTS_MAX {
                    return Err(TapeError::TooManyObjects { offset, max: OBJECTS_MAX });
                }
            }
            Record::ClusterStep { now, input, actions, .. } => self.cluster_step(offset, now, *input, actions)?,
            Record::End(TapeEnd::Full | TapeEnd::Overflow) => {
                if let Some(last) = self.last {
                    self.load.complete_until = Some(self.load.complete_until.map_or(last, |until| until.min(last)));
                }
            }
            Record::Gone { .. }
            | Record::Begin { config: ObjectConfig::Pool | ObjectConfig::Cluster { .. }, .. }
            | Record::RankStep { .. }
            | Record::PoolStep { .. }
            | Record::End(TapeEnd::Stopped) => {}
        }
        Ok(())
    }

    /// An input of a model's queue, and its actions.
    fn model_step(
        &mut self,
        offset: usize,
        object: u32,
        (now, input): (Time, ModelInput),
        actions: &[u8],
    ) -> Result<(), TapeError> {
        let unknown = TapeError::UnknownObject { offset, object, kind: "a model's queue" };
        // Batches count for the first model of a family.
        let of = self.objects.get(&object).and_then(|models| Some((*models.first()?, models.len() > 1)));
        let (model, is_family) = of.ok_or(unknown)?;
        let models = &mut self.load.models;
        match input {
            ModelInput::Arrive(request) => {
                let called = if is_family { ModelId::new(request.variant) } else { model };
                let known = self.model(offset, object, called)?;
                let position = known.requests.len();
                known.requests.push(recorded(now, &request));
                self.outcomes.arrived(request.id, called, position);
            }
            ModelInput::Return(request) | ModelInput::ReturnWithNext(request) => {
                self.outcomes.returned(model, request.id);
            }
            ModelInput::Cancel(id) | ModelInput::CancelWithNext(id) => self.outcomes.cancelled(models, id),
            ModelInput::Done { start_late, latency, predicted } => {
                self.outcomes.ended(models, now, (model, &Which::Taking(predicted)), (start_late, latency));
            }
            ModelInput::Withdraw { .. }
            | ModelInput::Grant { .. }
            | ModelInput::Classes(_)
            | ModelInput::Pool(_)
            | ModelInput::Wake => {}
        }
        let orders = ModelActions::take(&mut Source::new(actions, offset))?;
        let mut left = orders.planned.len();
        for action in &orders.list {
            match action {
                ModelAction::Execute(plan) => self.outcomes.planned(model, plan, &orders.planned, &mut left),
                ModelAction::Drop { request, .. } => self.outcomes.dropped(&mut self.load.models, request.id),
                ModelAction::Offer { .. } | ModelAction::Release { .. } | ModelAction::WakeAt(_) => {}
            }
        }
        Ok(())
    }

    /// An input of a policy for the whole sub-cluster, and its actions.
    fn cluster_step(&mut self, offset: usize, now: Time, input: ClusterInput, actions: &[u8]) -> Result<(), TapeError> {
        let unknown = |slot| TapeError::UnknownObject { offset, object: slot, kind: "a model of a policy" };
        match input {
            ClusterInput::Model { model: slot, known } => {
                let known_slot = self.slots.get_mut(&slot).ok_or_else(|| unknown(slot))?;
                let mut known = ClusterModel::clone(&known);
                known.delays.reply = *known_slot.reply.get_or_insert(known.delays.reply);
                let (model, name) = (known_slot.model, known_slot.name.clone());
                self.introduce(offset, model, name, known)?;
            }
            ClusterInput::Arrive { model: slot, request } => {
                let model = self.slots.get(&slot).map(|known_slot| known_slot.model).ok_or_else(|| unknown(slot))?;
                let known = self.load.models.get_mut(&model).ok_or_else(|| unknown(slot))?;
                self.outcomes.arrived(request.id, model, known.requests.len());
                known.requests.push(recorded(now, &request));
            }
            ClusterInput::Return { model: slot, request } => {
                let model = self.slots.get(&slot).map(|known_slot| known_slot.model).ok_or_else(|| unknown(slot))?;
                self.outcomes.returned(model, request.id);
            }
            ClusterInput::Cancel { request, .. } => self.outcomes.cancelled(&mut self.load.models, request.id),
            ClusterInput::Done { gpu, model: slot, start, start_late, latency } => {
                let model = self.slots.get(&slot).map(|known_slot| known_slot.model).ok_or_else(|| unknown(slot))?;
                let which = Which::At(gpu, start);
                self.outcomes.ended(&mut self.load.models, now, (model, &which), (start_late, latency));
            }
            ClusterInput::GpuUp { gpu, class, .. } if (gpu.get() as usize) < GPUS_MAX => self.add_gpu(gpu, class),
            ClusterInput::GpuDown(gpu) => self.remove_gpu(gpu),
            _ => {}
        }
        let orders = ClusterActions::take(&mut Source::new(actions, offset))?;
        let mut left = orders.planned.len();
        for action in &orders.list {
            match action {
                ClusterAction::Execute { model: slot, plan } => {
                    let model =
                        self.slots.get(slot).map(|known_slot| known_slot.model).ok_or_else(|| unknown(*slot))?;
                    self.outcomes.planned(model, plan, &orders.planned, &mut left);
                }
                ClusterAction::Drop { request, .. } => self.outcomes.dropped(&mut self.load.models, request.id),
                ClusterAction::Preempt(gpu) => self.outcomes.stopped(*gpu),
                ClusterAction::WakeAt(_) => {}
            }
        }
        Ok(())
    }

    /// The model is served, or served differently than before.
    fn introduce(&mut self, offset: usize, model: ModelId, name: String, known: ClusterModel) -> Result<(), TapeError> {
        match self.load.models.entry(model) {
            Entry::Occupied(mut before) => {
                let before = before.get_mut();
                (before.name, before.known) = (name, known);
            }
            Entry::Vacant(first) => {
                first.insert(RecordedModel { name, known, requests: Vec::new(), batches: Vec::new() });
            }
        }
        if self.load.models.len() > MODELS_MAX {
            return Err(TapeError::TooManyObjects { offset, max: MODELS_MAX });
        }
        Ok(())
    }

    /// Models share a queue from here on. Those that were served before stay as they were then; of the others it is
    /// known what they take by themselves.
    fn introduce_family(
        &mut self,
        offset: usize,
        models: &[(ModelId, String)],
        config: &ModelQueueConfig,
        profiles: &[(GpuClass, FamilyProfile)],
    ) -> Result<(), TapeError> {
        for ((model, name), variant) in models.iter().zip(0..) {
            if self.load.models.contains_key(model) {
                continue;
            }
            let alone = |(class, family): &(GpuClass, FamilyProfile)| Some((*class, family.unshared(variant)?));
            let alone: ClassProfiles = profiles.iter().filter_map(alone).collect();
            if alone.iter().next().is_none() {
                let got = models.len() as u64;
                return Err(TapeError::NoSuch { offset, what: "number of models in a family", got });
            }
            let known = ClusterModel::new(alone, config.slo).with_delays(config.delays);
            self.introduce(offset, *model, name.clone(), known)?;
        }
        Ok(())
    }

    fn models_of(&self, offset: usize, object: u32) -> Result<Vec<ModelId>, TapeError> {
        let known = self.objects.get(&object).cloned();
        known.ok_or(TapeError::UnknownObject { offset, object, kind: "a model's queue" })
    }

    fn model(&mut self, offset: usize, object: u32, model: ModelId) -> Result<&mut RecordedModel, TapeError> {
        let is_of_it = self.objects.get(&object).is_some_and(|models| models.contains(&model));
        let known = self.load.models.get_mut(&model).filter(|_| is_of_it);
        known.ok_or(TapeError::UnknownObject { offset, object, kind: "a model's queue" })
    }

    /// GPUs join one by one, so a new maximum is reached when one has joined.
    fn add_gpu(&mut self, gpu: GpuId, class: GpuClass) {
        if let Some(before) = self.gpus.insert(gpu, class) {
            self.by_class[before.index()] -= 1;
        }
        self.by_class[class.index()] += 1;
        if self.gpus.len() > self.most {
            self.most = self.gpus.len();
            self.load.gpus = self.by_class;
        }
    }

    fn remove_gpu(&mut self, gpu: GpuId) {
        if let Some(class) = self.gpus.remove(&gpu) {
            self.by_class[class.index()] -= 1;
        }
    }
}

fn recorded(now: Time, request: &Request) -> RecordedRequest {
    let outcome = RecordedOutcome::Unknown;
    RecordedRequest { at: now, slo: request.deadline.since(now), items: request.items, weight: request.weight, outcome }
}
