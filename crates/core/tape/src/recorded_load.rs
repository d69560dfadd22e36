//! The load on tapes: models as they were configured, GPUs, and the requests that arrived. It does not depend on what
//! was decided, so it can be played under other policies.

use std::collections::BTreeMap;

use symphony_scheduler::{GPUS_MAX, MODELS_MAX, ModelInput, ModelQueueConfig, RankInput};
use symphony_types::{GPU_CLASSES_MAX, GpuClass, GpuId, ModelId, Nanos, RequestValue, Time};

use crate::record::{ObjectConfig, Record};
use crate::{Tape, TapeError, TapeOrigin};

/// A request that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// When, by the clock of the lead.
    pub at: Time,
    /// From then to its deadline.
    pub slo: Nanos,
    /// Its items.
    pub items: u32,
    /// Its value, which decides who sheds.
    pub weight: RequestValue,
}

/// A model as it was recorded last, and its requests.
#[derive(Clone, Debug)]
pub struct RecordedModel {
    /// Its name.
    pub name: String,
    /// Its configuration, with the last profiles and delays.
    pub config: ModelQueueConfig,
    /// Requests in the order of time. Those that came again after they had been taken in are not among them.
    pub requests: Vec<RecordedRequest>,
}

/// The load of one lead, from the tapes of its workers.
#[derive(Clone, Debug, Default)]
pub struct RecordedLoad {
    origin: Option<TapeOrigin>,
    models: BTreeMap<ModelId, RecordedModel>,
    /// By class: GPUs when there were most.
    gpus: [u32; GPU_CLASSES_MAX],
}

impl RecordedLoad {
    /// Adds the load of one more tape.
    ///
    /// # Errors
    /// If the tape is damaged or invalid, or of another lead than those before; a tape that ends early is none of that.
    pub fn add(&mut self, tape: &Tape<'_>) -> Result<(), TapeError> {
        let got = tape.header().origin;
        let origin = *self.origin.get_or_insert(got);
        if got != origin {
            let (subcluster, token) = (origin.subcluster, origin.token);
            let (got_subcluster, got_token) = (got.subcluster, got.token);
            return Err(TapeError::AnotherLead { subcluster, token, got_subcluster, got_token });
        }
        let (objects, gpus, by_class) = (BTreeMap::new(), BTreeMap::new(), [0; GPU_CLASSES_MAX]);
        let mut reading = Reading { load: self, objects, gpus, by_class, most: 0 };
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

    /// GPUs by class when there were most; none without the tape of a rank worker.
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
    /// Which model's queue an object is.
    objects: BTreeMap<u32, ModelId>,
    gpus: BTreeMap<GpuId, GpuClass>,
    /// How many of them are of each class.
    by_class: [u32; GPU_CLASSES_MAX],
    most: usize,
}

impl Reading<'_> {
    fn record(&mut self, offset: usize, record: Record<'_>) -> Result<(), TapeError> {
        match record {
            Record::Begin { object, config: ObjectConfig::Model { model, name, config, .. } } => {
                self.objects.insert(object, model);
                let known = self.load.models.entry(model);
                let known = known.or_insert_with(|| RecordedModel {
                    name: String::new(),
                    config: (*config).clone(),
                    requests: Vec::new(),
                });
                (known.name, known.config) = (name, *config);
                if self.load.models.len() > MODELS_MAX {
                    return Err(TapeError::TooManyObjects { offset, max: MODELS_MAX });
                }
            }
            Record::Begin { config: ObjectConfig::Ranker { gpus, .. }, .. } => {
                if gpus as usize > GPUS_MAX {
                    return Err(TapeError::NoSuch { offset, what: "number of GPUs", got: gpus.into() });
                }
                (0..gpus).for_each(|gpu| self.add_gpu(GpuId::new(gpu), GpuClass::FIRST));
            }
            Record::Profile { object, class, profile } => {
                self.model(offset, object)?.config.profiles.set(class, profile);
            }
            Record::DataDelay { object, data } => self.model(offset, object)?.config.delays.data = data,
            Record::ModelStep { object, now, input: ModelInput::Arrive(request), .. } => {
                let (slo, items) = (request.deadline.since(now), request.items);
                let request = RecordedRequest { at: now, slo, items, weight: request.weight };
                self.model(offset, object)?.requests.push(request);
            }
            Record::RankStep { input: RankInput::Add { gpu, class, .. }, .. } if (gpu.get() as usize) < GPUS_MAX => {
                self.add_gpu(gpu, class);
            }
            Record::RankStep { input: RankInput::Remove(gpu), .. } => {
                if let Some(class) = self.gpus.remove(&gpu) {
                    self.by_class[class.index()] -= 1;
                }
            }
            Record::Begin { config: ObjectConfig::Cluster { policy, .. }, .. } => {
                return Err(TapeError::NoQueues { offset, policy });
            }
            Record::Gone { .. }
            | Record::Begin { config: ObjectConfig::Pool, .. }
            | Record::ModelStep { .. }
            | Record::RankStep { .. }
            | Record::PoolStep { .. }
            | Record::ClusterStep { .. }
            | Record::End(_) => {}
        }
        Ok(())
    }

    fn model(&mut self, offset: usize, object: u32) -> Result<&mut RecordedModel, TapeError> {
        let known = self.objects.get(&object).and_then(|model| self.load.models.get_mut(model));
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
}
