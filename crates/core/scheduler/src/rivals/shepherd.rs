//! Shepherd's online scheduler: the largest batch wins and may preempt a running one.

use std::collections::VecDeque;
use std::sync::Arc;

use symphony_types::{GpuId, Nanos, Time};

use super::cluster::{Cluster, GpuAvailability};
use super::deadline_queue::{DeadlineQueue, Waiting};
use super::gpu_book::GpuBook;
use crate::MinTree;
use crate::cluster::facts::ClusterFacts;
use crate::cluster::model::ClusterModel;
use crate::cluster_policy::{ClusterActions, ClusterInput, ClusterPolicy};

/// Parameters that Shepherd leaves to the operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShepherdSettings {
    /// A batch preempts a running one if it is this many times larger. The paper calls the factor λ.
    pub preempt_factor: f64,
}

/// A batch that runs on a GPU or is on its way there.
#[derive(Clone, Debug, Default)]
struct Running {
    model: usize,
    items: u32,
    start: Time,
    /// Kept until the batch has ended, since it may be preempted. Empty if nothing runs.
    requests: Vec<Waiting>,
}

/// A batch that could run: `requests` of a queue after the first `skip`, of which the first must end by `due`.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    skip: usize,
    requests: usize,
    items: u32,
    due: Time,
}

/// Optimises a guaranteed share of the best possible goodput under arbitrary arrivals, at the cost of GPU time spent on
/// preempted batches and of models with small batches.
///
/// From *SHEPHERD: Serving DNNs in the Wild* (NSDI 2023), Flex. A GPU that has ended a batch takes the largest feasible
/// batch of all models. After an arrival the request's model tries each GPU in turn: an idle one takes the model's
/// batch; a busy one takes it if it is λ times larger than the running batch, which starts over later. Assumptions
/// where the published pseudo-code is silent or ambiguous: feasible means that *all* requests of a batch end in time,
/// so a batch is the longest such prefix by deadline; among equally large batches the most urgent goes first; the
/// planner's groups are one group, the cluster; what a batch takes is what it takes on the class of its GPU. Where
/// running batches cannot be stopped, none is.
#[derive(Clone, Debug)]
pub struct Shepherd {
    cluster: Cluster,
    preempt_factor: f64,
    can_preempt: bool,
    queues: Vec<DeadlineQueue>,
    gpus: GpuBook,
    running: Vec<Running>,
    /// When each GPU is sent its next batch, so that it arrives in time. Empty without a control delay: then the end of
    /// a batch triggers the decision.
    ask: MinTree,
    /// Per model: when the head of its queue becomes unreachable.
    expiry: MinTree,
    waiting: usize,
    wake_at: Time,
    /// Models with new requests; used only within a step.
    arrived: VecDeque<usize>,
}

impl Shepherd {
    /// Without models and GPUs, which come as inputs. A factor below one counts as one: a smaller batch never preempts.
    #[must_use]
    pub fn new(facts: &ClusterFacts, settings: ShepherdSettings) -> Self {
        Self {
            cluster: Cluster::default(),
            preempt_factor: settings.preempt_factor.max(1.0),
            can_preempt: facts.can_preempt,
            queues: Vec::new(),
            gpus: GpuBook::new(facts.plans_max),
            running: Vec::new(),
            ask: MinTree::new(0),
            expiry: MinTree::new(0),
            waiting: 0,
            wake_at: Time::NEVER,
            arrived: VecDeque::new(),
        }
    }

    /// A model has come, changed or gone.
    fn set_model(&mut self, model: u32, known: Option<Arc<ClusterModel>>) {
        let Some(slot) = self.cluster.set(model, known) else { return };
        if slot >= self.queues.len() {
            self.queues.resize(slot + 1, DeadlineQueue::default());
            self.expiry.grow(slot + 1);
        }
        if let Some(known) = self.cluster.get(slot) {
            self.queues[slot].rekey(|request| known.must_end_by(request));
            for running in self.running.iter_mut().filter(|running| running.model == slot) {
                running
                    .requests
                    .iter_mut()
                    .for_each(|waiting| waiting.must_end_by = known.must_end_by(&waiting.request));
            }
        } else {
            self.waiting -= self.queues[slot].clear();
            // What runs of it runs on: its requests would have no owner.
            self.running
                .iter_mut()
                .filter(|running| running.model == slot)
                .for_each(|running| running.requests.clear());
        }
        self.record_expiry(slot);
    }

    /// The usable GPUs are others: what the fastest of them can still meet may be something else.
    fn gpus_changed(&mut self) {
        if self.cluster.set_classes(self.gpus.classes()) {
            (0..self.queues.len()).for_each(|model| self.record_expiry(model));
        }
    }

    fn cancel(&mut self, model: u32, request: &crate::Request) {
        let slot = model as usize;
        let must_end_by = self.cluster.waiting(slot, *request).must_end_by;
        if self.queues.get_mut(slot).is_some_and(|queue| queue.remove(request, must_end_by)) {
            self.waiting -= 1;
            self.record_expiry(slot);
        }
    }

    /// A plan of the GPU has ended or was refused.
    fn ended(&mut self, now: Time, gpu: GpuId, out: &mut ClusterActions) {
        let slot = gpu.get() as usize;
        if self.gpus.plans(slot) == 0 {
            self.running[slot].requests.clear();
            self.ask.set(slot, MinTree::EMPTY);
            self.feed(now, slot, out);
        }
    }

    fn drop_expired(&mut self, now: Time, out: &mut ClusterActions) {
        while let Some((model, at)) = self.expiry.min()
            && at <= now.as_nanos()
        {
            if let Some(head) = self.queues[model].pop_front() {
                self.cluster.give_up(now, model, &head, out);
                self.waiting -= 1;
            }
            self.record_expiry(model);
        }
    }

    fn record_expiry(&mut self, model: usize) {
        let at = self.queues[model].head().map_or(Time::NEVER, |head| self.cluster.out_of_reach_at(model, head));
        self.expiry.set(model, at.as_nanos());
    }

    /// The longest prefix of the queue whose requests all end in time on the GPU; where others are faster, without the
    /// heads that only those can still meet.
    fn feasible(&self, now: Time, model: usize, gpu: GpuAvailability) -> Batch {
        let queue = &self.queues[model];
        let skip = match self.cluster.is_fastest(model, gpu.class) {
            true => 0,
            false => queue.first_until(self.cluster.finish(model, now, gpu, 1)),
        };
        let Some(head) = queue.get(skip) else { return Batch::default() };
        let batch = self.cluster.batch_within(model, now, gpu, queue.items(), head.must_end_by);
        let (requests, items) = queue.take(skip, batch);
        Batch { skip, requests, items, due: head.must_end_by }
    }

    /// The GPU is or soon becomes free: sends it the largest batch of all models.
    fn feed(&mut self, now: Time, gpu: usize, out: &mut ClusterActions) {
        let availability = self.gpus.availability(gpu);
        let mut best: Option<(usize, Batch)> = None;
        for model in 0..self.queues.len() {
            let batch = self.feasible(now, model, availability);
            let larger = |(_, best): &(usize, Batch)| (batch.items, best.due) > (best.items, batch.due);
            if batch.requests > 0 && best.as_ref().is_none_or(larger) {
                best = Some((model, batch));
            }
        }
        if let Some((model, batch)) = best {
            self.execute(now, gpu, model, batch, out);
        }
    }

    fn execute(&mut self, now: Time, gpu: usize, model: usize, batch: Batch, out: &mut ClusterActions) {
        let running = &mut self.running[gpu];
        running.requests.clear();
        let queue = &mut self.queues[model];
        let plan =
            self.cluster.dispatch(now, model, self.gpus.availability(gpu), (batch.skip, batch.requests), queue, out);
        running.requests.extend(out.requests_of(&plan).iter().map(|&request| self.cluster.waiting(model, request)));
        (running.model, running.items, running.start) = (model, plan.batch, plan.start);
        self.gpus.planned(&plan);
        self.waiting -= batch.requests;
        self.record_expiry(model);
        let lead = self.cluster.lead_max();
        self.ask.set(gpu, if lead == Nanos::ZERO { MinTree::EMPTY } else { (plan.end - lead).as_nanos() });
    }

    /// Offers the waiting requests of the models in `arrived` to every GPU.
    fn offer(&mut self, now: Time, out: &mut ClusterActions) {
        while let Some(model) = self.arrived.pop_front() {
            for gpu in 0..self.gpus.len() {
                if self.queues[model].is_empty() {
                    break;
                }
                if !self.gpus.is_up(gpu) {
                    continue;
                }
                if self.gpus.plans(gpu) == 0 {
                    let batch = self.feasible(now, model, self.gpus.availability(gpu));
                    if batch.requests > 0 {
                        self.execute(now, gpu, model, batch, out);
                    }
                } else if self.is_preempted_by(now, gpu, model) {
                    self.preempt(now, gpu, model, out);
                }
            }
        }
    }

    fn is_preempted_by(&self, now: Time, gpu: usize, model: usize) -> bool {
        let running = &self.running[gpu];
        if !self.can_preempt {
            return false;
        }
        // A GPU whose batch has not started, or whose next batch is already sent, is not preempted.
        if running.requests.is_empty() || running.start > now || self.gpus.plans(gpu) != 1 {
            return false;
        }
        // Strictly larger: equal batches would preempt each other for ever.
        let needed = (self.preempt_factor * f64::from(running.items)).max(f64::from(running.items) + 1.0);
        let (queue, stopped) = (&self.queues[model], GpuAvailability { free_at: now, ..self.gpus.availability(gpu) });
        let Some(head) = queue.head() else { return false };
        if running.model != model {
            return queue.items() as f64 >= needed && f64::from(self.feasible(now, model, stopped).items) >= needed;
        }
        let items = queue.items() + u64::from(running.items);
        let by = head.must_end_by.min(running.requests[0].must_end_by);
        if (items as f64) < needed {
            return false;
        }
        let batch = self.cluster.batch_within(model, now, stopped, items, by);
        f64::from(batch) >= needed && f64::from(queue.take_merged(&running.requests, batch)) >= needed
    }

    fn preempt(&mut self, now: Time, gpu: usize, model: usize, out: &mut ClusterActions) {
        out.preempt(GpuId::new(gpu as u32));
        self.gpus.preempted(now, gpu);
        let mut requests = std::mem::take(&mut self.running[gpu].requests);
        let before = self.running[gpu].model;
        self.waiting += requests.len();
        for waiting in requests.drain(..) {
            self.queues[before].insert(waiting);
        }
        self.running[gpu].requests = requests;
        let batch = self.feasible(now, model, self.gpus.availability(gpu));
        if batch.requests > 0 {
            self.execute(now, gpu, model, batch, out);
        }
        // Preempted requests count as new unless they can no longer be met.
        self.record_expiry(before);
        self.drop_expired(now, out);
        if !self.arrived.contains(&before) {
            self.arrived.push_back(before);
        }
    }

    fn feed_those_who_ask(&mut self, now: Time, out: &mut ClusterActions) {
        while let Some((gpu, at)) = self.ask.min()
            && at <= now.as_nanos()
        {
            self.ask.set(gpu, MinTree::EMPTY);
            // At most two plans per GPU, and none behind a late one.
            let is_fed = self.gpus.plans(gpu) == 1 && self.gpus.has_room(gpu);
            if is_fed && self.gpus.availability(gpu).free_at >= now {
                self.feed(now, gpu, out);
            }
        }
    }
}

impl ClusterPolicy for Shepherd {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        // What leaves by this input is not given up here.
        if !matches!(input, ClusterInput::Cancel { .. } | ClusterInput::ModelGone(_)) {
            self.drop_expired(now, out);
        }
        match input {
            ClusterInput::Arrive { model, request } | ClusterInput::Return { model, request } => {
                let slot = model as usize;
                if self.cluster.enqueue(model, request, self.queues.get_mut(slot), out) {
                    self.waiting += 1;
                    self.record_expiry(slot);
                    self.drop_expired(now, out);
                    self.arrived.push_back(slot);
                    self.offer(now, out);
                }
            }
            ClusterInput::Cancel { model, request } => {
                self.cancel(model, &request);
                self.drop_expired(now, out);
            }
            ClusterInput::GpuUp { gpu, class, free_at } => {
                if self.gpus.up(gpu, class, free_at) {
                    self.running.resize(self.gpus.len(), Running::default());
                    self.ask.grow(self.gpus.len());
                    self.running[gpu.get() as usize].requests.clear();
                    self.ask.set(gpu.get() as usize, MinTree::EMPTY);
                    self.gpus_changed();
                    self.drop_expired(now, out);
                    self.feed(now, gpu.get() as usize, out);
                }
            }
            ClusterInput::GpuDown(gpu) => {
                self.gpus.down(gpu);
                if let Some(running) = self.running.get_mut(gpu.get() as usize) {
                    running.requests.clear();
                    self.ask.set(gpu.get() as usize, MinTree::EMPTY);
                }
                self.gpus_changed();
                self.drop_expired(now, out);
            }
            ClusterInput::Done { gpu, .. } if self.gpus.is_up(gpu.get() as usize) => {
                self.gpus.done(now, gpu);
                self.ended(now, gpu, out);
            }
            ClusterInput::Refused { gpu, start, .. } if self.gpus.is_up(gpu.get() as usize) => {
                self.gpus.refused(now, gpu, start);
                // Which of two plans still runs is not known here: it is not preempted.
                self.running[gpu.get() as usize].requests.clear();
                self.ended(now, gpu, out);
            }
            ClusterInput::Done { .. } | ClusterInput::Refused { .. } => {}
            ClusterInput::Model { model, known } => {
                self.set_model(model, Some(known));
                self.drop_expired(now, out);
            }
            ClusterInput::ModelGone(model) => {
                self.set_model(model, None);
                self.drop_expired(now, out);
            }
            ClusterInput::Wake => self.wake_at = Time::NEVER,
        }
        self.feed_those_who_ask(now, out);
        let wake_at = Time::from_nanos(self.expiry.min_key().min(self.ask.min_key()));
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            out.wake_at(wake_at);
        }
    }

    fn waiting(&self) -> usize {
        self.waiting
    }
}
