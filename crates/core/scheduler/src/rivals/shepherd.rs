//! Shepherd's online scheduler: the largest batch wins and may preempt a running one.

use std::collections::VecDeque;

use symphony_types::{GpuId, Nanos, Time};

use super::cluster::Cluster;
use super::deadline_queue::{DeadlineQueue, Waiting};
use super::gpu_book::GpuBook;
use crate::MinTree;
use crate::cluster_policy::{ClusterAction, ClusterActions, ClusterInput, ClusterPolicy};

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

/// Optimises a guaranteed share of the best possible goodput under arbitrary arrivals, at the cost of GPU time spent on
/// preempted batches and of models with small batches.
///
/// From *SHEPHERD: Serving DNNs in the Wild* (NSDI 2023), Flex. A GPU that has ended a batch takes the largest feasible
/// batch of all models. After an arrival the request's model tries each GPU in turn: an idle one takes the model's
/// batch; a busy one takes it if it is λ times larger than the running batch, which starts over later. Assumptions
/// where the published pseudo-code is silent or ambiguous: feasible means that *all* requests of a batch end in time,
/// so a batch is the longest such prefix by deadline; among equally large batches the most urgent goes first; the
/// planner's groups are one group, the cluster.
#[derive(Clone, Debug)]
pub struct Shepherd {
    cluster: Cluster,
    preempt_factor: f64,
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
    /// For these models; GPUs are added later. A factor below one counts as one: a smaller batch never preempts.
    #[must_use]
    pub fn new(cluster: Cluster, settings: ShepherdSettings) -> Self {
        let models = cluster.models.len();
        Self {
            preempt_factor: settings.preempt_factor.max(1.0),
            queues: vec![DeadlineQueue::default(); models],
            gpus: GpuBook::new(),
            running: Vec::new(),
            ask: MinTree::new(0),
            expiry: MinTree::new(models),
            waiting: 0,
            wake_at: Time::NEVER,
            arrived: VecDeque::new(),
            cluster,
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

    /// Requests and items of the longest prefix of the queue whose requests all end in time on a GPU that is free at
    /// `gpu_free`.
    fn feasible(&self, now: Time, model: usize, gpu_free: Time) -> (usize, u32) {
        let queue = &self.queues[model];
        let Some(head) = queue.head() else { return (0, 0) };
        let batch = self.cluster.batch_within(model, now, gpu_free, queue.items(), head.must_end_by);
        queue.take(0, batch)
    }

    /// The GPU is or soon becomes free: sends it the largest batch of all models.
    fn feed(&mut self, now: Time, gpu: usize, out: &mut ClusterActions) {
        let gpu_free = self.gpus.vacancy(gpu).free_at;
        let mut best: Option<(u32, Time, usize, usize)> = None;
        for model in 0..self.queues.len() {
            let (requests, items) = self.feasible(now, model, gpu_free);
            let Some(head) = self.queues[model].head().filter(|_| requests > 0) else { continue };
            let larger = |&(most, due, ..): &(u32, Time, usize, usize)| (items, due) > (most, head.must_end_by);
            if best.as_ref().is_none_or(larger) {
                best = Some((items, head.must_end_by, model, requests));
            }
        }
        if let Some((_, _, model, requests)) = best {
            self.execute(now, gpu, model, requests, out);
        }
    }

    fn execute(&mut self, now: Time, gpu: usize, model: usize, requests: usize, out: &mut ClusterActions) {
        let running = &mut self.running[gpu];
        running.requests.clear();
        let queue = &mut self.queues[model];
        let plan = self.cluster.dispatch(now, model, self.gpus.vacancy(gpu), requests, queue, out);
        running.requests.extend(out.requests_of(&plan).iter().map(|&request| self.cluster.waiting(request)));
        (running.model, running.items, running.start) = (model, plan.batch, plan.start);
        self.gpus.planned(&plan);
        self.waiting -= requests;
        self.record_expiry(model);
        let lead = self.cluster.delays.lead(1);
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
                    let (requests, _) = self.feasible(now, model, self.gpus.vacancy(gpu).free_at);
                    if requests > 0 {
                        self.execute(now, gpu, model, requests, out);
                    }
                } else if self.is_preempted_by(now, gpu, model) {
                    self.preempt(now, gpu, model, out);
                }
            }
        }
    }

    fn is_preempted_by(&self, now: Time, gpu: usize, model: usize) -> bool {
        let running = &self.running[gpu];
        // A GPU whose batch has not started, or whose next batch is already sent, is not preempted.
        if running.requests.is_empty() || running.start > now || self.gpus.plans(gpu) != 1 {
            return false;
        }
        // Strictly larger: equal batches would preempt each other for ever.
        let needed = (self.preempt_factor * f64::from(running.items)).max(f64::from(running.items) + 1.0);
        let queue = &self.queues[model];
        let Some(head) = queue.head() else { return false };
        if running.model != model {
            return queue.items() as f64 >= needed && f64::from(self.feasible(now, model, now).1) >= needed;
        }
        let items = queue.items() + u64::from(running.items);
        let by = head.must_end_by.min(running.requests[0].must_end_by);
        if (items as f64) < needed {
            return false;
        }
        let batch = self.cluster.batch_within(model, now, now, items, by);
        f64::from(batch) >= needed && f64::from(queue.take_merged(&running.requests, batch)) >= needed
    }

    fn preempt(&mut self, now: Time, gpu: usize, model: usize, out: &mut ClusterActions) {
        out.list.push(ClusterAction::Preempt(GpuId::new(gpu as u32)));
        self.gpus.preempted(now, gpu);
        let mut requests = std::mem::take(&mut self.running[gpu].requests);
        let before = self.running[gpu].model;
        self.waiting += requests.len();
        for waiting in requests.drain(..) {
            self.queues[before].insert(waiting);
        }
        self.running[gpu].requests = requests;
        let (requests, _) = self.feasible(now, model, now);
        if requests > 0 {
            self.execute(now, gpu, model, requests, out);
        }
        // Preempted requests count as new unless they can no longer be met.
        self.record_expiry(before);
        self.drop_expired(now, out);
        if !self.arrived.contains(&before) {
            self.arrived.push_back(before);
        }
    }

    fn ended(&mut self, gpu: usize) {
        if self.gpus.plans(gpu) == 0 {
            self.running[gpu].requests.clear();
        }
    }

    fn feed_those_who_ask(&mut self, now: Time, out: &mut ClusterActions) {
        while let Some((gpu, at)) = self.ask.min()
            && at <= now.as_nanos()
        {
            self.ask.set(gpu, MinTree::EMPTY);
            // At most two plans per GPU, and none behind a late one.
            if self.gpus.plans(gpu) == 1 && self.gpus.vacancy(gpu).free_at >= now {
                self.feed(now, gpu, out);
            }
        }
    }
}

impl ClusterPolicy for Shepherd {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        self.drop_expired(now, out);
        match input {
            ClusterInput::Arrive { model, request } | ClusterInput::Return { model, request } => {
                let slot = model as usize;
                if self.cluster.enqueue(slot, request, &mut self.queues[slot], out) {
                    self.waiting += 1;
                    self.record_expiry(slot);
                    self.drop_expired(now, out);
                    self.arrived.push_back(slot);
                    self.offer(now, out);
                }
            }
            ClusterInput::GpuUp { gpu, free_at } => {
                self.gpus.up(gpu, free_at);
                self.running.resize(self.gpus.len(), Running::default());
                self.ask.grow(self.gpus.len());
                self.running[gpu.get() as usize].requests.clear();
                self.feed(now, gpu.get() as usize, out);
            }
            ClusterInput::GpuDown(gpu) => {
                self.gpus.down(gpu);
                if let Some(running) = self.running.get_mut(gpu.get() as usize) {
                    running.requests.clear();
                    self.ask.set(gpu.get() as usize, MinTree::EMPTY);
                }
            }
            ClusterInput::Done { gpu, .. } if self.gpus.is_up(gpu.get() as usize) => {
                let slot = gpu.get() as usize;
                self.gpus.done(now, gpu);
                self.ended(slot);
                if self.gpus.plans(slot) == 0 {
                    self.ask.set(slot, MinTree::EMPTY);
                    self.feed(now, slot, out);
                }
            }
            ClusterInput::Done { .. } => {}
            ClusterInput::Wake => self.wake_at = Time::NEVER,
        }
        self.feed_those_who_ask(now, out);
        let wake_at = Time::from_nanos(self.expiry.min_key().min(self.ask.min_key()));
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            out.list.push(ClusterAction::WakeAt(wake_at));
        }
    }

    fn waiting(&self) -> usize {
        self.waiting
    }
}
