//! The models as the policy knows them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use symphony_scheduler::{
    ClusterInput, ClusterModel, Delays, LatenessMeter, ModelQueueConfig, Policy, RateMeter, Shed,
};
use symphony_types::{ModelId, Nanos, RequestValue, Time};

use super::PolicyWorker;
use super::request_cost::RequestCost;
use crate::workers::counters::count;
use crate::workers::load::ModelCounts;
use crate::workers::messages::ModelMessage;

/// A measured value is sent again when it differs from the last one by this share: it is never exact, and a policy may
/// have much to do with a new one.
const CHANGE_TOLD: f64 = 0.1;

/// The largest part of an SLO that lateness takes off deadlines: a machine that pauses is no reason to serve nothing.
const LATENESS_SHARE_MAX: u64 = 4;

/// A served model.
pub(super) struct ModelSlot {
    pub(super) id: ModelId,
    pub(super) known: Arc<ClusterModel>,
    pub(super) counts: Arc<ModelCounts>,
    pub(super) rate: RateMeter,
    /// How much later than planned its batches ended.
    pub(super) lateness: LatenessMeter,
    /// The reply delay without lateness.
    reply: Nanos,
    /// The most requests that may wait.
    pub(super) requests_max: u64,
    /// The requests that the policy owns.
    pub(super) waiting: u64,
    pub(super) cost: RequestCost,
}

impl ModelSlot {
    /// The policy has this many more requests.
    pub(super) fn came(&mut self, requests: u64) {
        self.waiting += requests;
        self.counts.queued.store(self.waiting, Ordering::Relaxed);
    }

    /// The policy has this many fewer requests.
    pub(super) fn left(&mut self, requests: u64) {
        self.waiting = self.waiting.saturating_sub(requests);
        self.counts.queued.store(self.waiting, Ordering::Relaxed);
    }

    /// The reply delay that deadlines are planned with: lateness comes off them.
    fn reply_with_lateness(&self) -> Nanos {
        let most = Nanos::new(self.known.slo.get() / LATENESS_SHARE_MAX);
        self.reply + self.lateness.start_late().min(most)
    }

    fn set_known(&mut self, known: ClusterModel, merges: bool) {
        self.cost = RequestCost::new(&known, merges);
        self.known = Arc::new(known);
    }
}

/// The value of a model, which its own policy looks at if it sheds.
const fn value_of(policy: &Policy) -> RequestValue {
    match policy.shed {
        Shed::Proportional(value) => value,
        Shed::None => RequestValue::ONE,
    }
}

impl PolicyWorker {
    /// Handles a message that is about models.
    pub(super) fn learn(&mut self, now: Time, message: ModelMessage) {
        match message {
            ModelMessage::Add { model, name, config, counts, .. } => {
                self.add_model(now, (model, &*name), *config, counts);
            }
            ModelMessage::Change { model, config, .. } => self.change_model(now, model, |known| {
                // Its profiles may have been corrected, and its lateness measured since.
                let delays = Delays { reply: known.delays.reply, ..config.delays };
                (known.slo, known.value, known.delays) = (config.slo, value_of(&config.policy), delays);
            }),
            ModelMessage::Profile { model, class, profile } => {
                self.change_model(now, model, |known| known.profiles.set(class, *profile));
            }
            ModelMessage::DataDelay { model, data } => {
                self.change_model(now, model, |known| known.delays.data = data);
            }
            ModelMessage::Remove { model } => self.remove_model(now, model),
            // The policy learns of classes by their GPUs; grants and signals are of queues and their ranker; what is
            // carried has been handled.
            _ => {}
        }
    }

    fn add_model(
        &mut self,
        now: Time,
        (id, name): (ModelId, &str),
        config: ModelQueueConfig,
        counts: Arc<ModelCounts>,
    ) {
        if self.by_id.contains_key(&id) {
            return;
        }
        let value = value_of(&config.policy);
        let known = ClusterModel::new(config.profiles, config.slo).with_delays(config.delays).with_value(value);
        let cost = RequestCost::new(&known, self.merges);
        let (reply, known) = (known.delays.reply, Arc::new(known));
        let slot = self.free_slot();
        self.slots[slot as usize] = Some(ModelSlot {
            id,
            known: Arc::clone(&known),
            counts,
            rate: RateMeter::default(),
            lateness: LatenessMeter::default(),
            reply,
            requests_max: config.requests_max as u64,
            waiting: 0,
            cost,
        });
        self.by_id.insert(id, slot);
        self.tape.cluster_model(slot, (id, name));
        self.step(now, ClusterInput::Model { model: slot, known });
    }

    /// A slot that no model has, nor a plan that has not ended.
    fn free_slot(&mut self) -> u32 {
        let out = |slot: u32| self.gpus.iter().flat_map(|gpu| &gpu.out).any(|out| out.model == slot);
        let free = (0..).zip(&self.slots).find(|&(slot, model)| model.is_none() && !out(slot)).map(|(slot, _)| slot);
        free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        })
    }

    fn change_model(&mut self, now: Time, id: ModelId, change: impl FnOnce(&mut ClusterModel)) {
        let Some(&slot) = self.by_id.get(&id) else { return };
        let Some(model) = &mut self.slots[slot as usize] else { return };
        let mut known = ClusterModel::clone(&model.known);
        change(&mut known);
        if known != *model.known {
            model.set_known(known, self.merges);
            let known = Arc::clone(&model.known);
            self.step(now, ClusterInput::Model { model: slot, known });
        }
    }

    fn remove_model(&mut self, now: Time, id: ModelId) {
        let Some(slot) = self.by_id.remove(&id) else { return };
        self.slots[slot as usize] = None;
        let waiting = self.referee.all_owned();
        self.step(now, ClusterInput::ModelGone(slot));
        for (_, request) in waiting.into_iter().filter(|&(of, _)| of == slot) {
            self.delivery.end_unserved(request.id);
        }
    }

    /// When measured values are sent next; never while no request comes.
    pub(super) fn next_measured_at(&self) -> Time {
        let changed = self.slots.iter().flatten().any(|model| {
            let (sent, now) = (model.known.rate_per_second, model.rate.per_second());
            sent > 0.0 || now > 0.0
        });
        if changed { self.measured_at } else { Time::NEVER }
    }

    /// Tells the policy the rates and the lateness that have changed.
    pub(super) fn send_measured(&mut self, now: Time) {
        for slot in 0..self.slots.len() {
            let Some(model) = &mut self.slots[slot] else { continue };
            if model.counts.arrived_items.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // Time without arrivals counts, too, after the first one.
            model.rate.count(now, 0);
            let (id, rate, reply) = (model.id, model.rate.per_second(), model.reply_with_lateness());
            let (rate_told, reply_told) = (model.known.rate_per_second, model.known.delays.reply);
            let is_news = |new: f64, sent: f64| (new - sent).abs() > sent * CHANGE_TOLD;
            let rate_is_news = is_news(rate, rate_told);
            let reply_is_news = is_news(reply.as_secs_f64(), reply_told.as_secs_f64());
            if rate_is_news || reply_is_news {
                self.change_model(now, id, |known| {
                    // Each by itself: lateness changes twice a second, and at each other rate a policy may plan anew.
                    if rate_is_news {
                        known.rate_per_second = rate;
                    }
                    if reply_is_news {
                        known.delays.reply = reply;
                    }
                });
            }
        }
    }

    /// An arrival is measured.
    pub(super) fn measure(&mut self, now: Time, slot: u32, items: u32) {
        let Some(model) = &mut self.slots[slot as usize] else { return };
        model.rate.count(now, items);
        count(&model.counts.arrived_items, u64::from(items));
        model.counts.request_items.record(u64::from(items));
        count(&self.metrics.demand_ns, model.cost.of(&model.known, items, &self.gpus_by_class).get());
    }
}
