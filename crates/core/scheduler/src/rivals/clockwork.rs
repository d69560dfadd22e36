//! Clockwork's controller: strategies per model and batch size, and GPUs filled a little ahead of time.

use std::sync::Arc;

use symphony_types::{GpuClasses, Nanos, Time};

use super::cluster::{Cluster, GpuAvailability};
use super::deadline_queue::DeadlineQueue;
use super::gpu_book::GpuBook;
use crate::MinTree;
use crate::cluster::facts::ClusterFacts;
use crate::cluster::model::ClusterModel;
use crate::cluster_policy::{ClusterActions, ClusterInput, ClusterPolicy};

/// Parameters that Clockwork leaves to the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockworkSettings {
    /// The look-ahead: a GPU with less work than this gets more.
    pub commit: Nanos,
    /// The margin by which deadlines are moved forward.
    pub early: Nanos,
}

/// Optimises predictability (each action has a narrow time window to which its worker is held), at the cost of small
/// batches: GPUs are filled as soon as they have room, and requests before the chosen batch are lost.
///
/// From *Serving DNNs like Clockwork* (OSDI 2020) and its published controller (`infer5`). For each model and batch
/// size b there is a strategy: run the b oldest requests that still end in time in a batch of b. The most urgent
/// strategy, by the deadline of its oldest request − ℓ(b), selects the model; the largest batch size with enough such
/// requests is sent. Any batch size may run, as in the comparison of the Symphony paper, section 5. Weights are always
/// loaded. Strategies are those of the class of the GPU that has room; a GPU whose class has none is passed over.
#[derive(Clone, Debug)]
pub struct Clockwork {
    cluster: Cluster,
    settings: ClockworkSettings,
    /// The margin that is subtracted from each model's deadlines.
    early: Vec<Nanos>,
    queues: Vec<DeadlineQueue>,
    gpus: GpuBook,
    /// Per model: when the head of its queue becomes unreachable.
    expiry: MinTree,
    waiting: usize,
    wake_at: Time,
}

/// A possible batch; the `skip` requests before it do not end in time on its GPU.
#[derive(Clone, Copy, Debug)]
struct Choice {
    urgency: Time,
    skip: usize,
    requests: usize,
}

impl Clockwork {
    /// Without models and GPUs, which come as inputs.
    #[must_use]
    pub fn new(facts: &ClusterFacts, settings: ClockworkSettings) -> Self {
        Self {
            cluster: Cluster::default(),
            settings,
            early: Vec::new(),
            queues: Vec::new(),
            gpus: GpuBook::new(facts.plans_max),
            expiry: MinTree::new(0),
            waiting: 0,
            wake_at: Time::NEVER,
        }
    }

    /// A model has come, changed or gone.
    fn set_model(&mut self, model: u32, known: Option<Arc<ClusterModel>>) {
        let slo = known.as_ref().map(|known| known.slo);
        let Some(slot) = self.cluster.set(model, known) else { return };
        if slot >= self.queues.len() {
            self.queues.resize(slot + 1, DeadlineQueue::default());
            self.early.resize(slot + 1, Nanos::ZERO);
            self.expiry.grow(slot + 1);
        }
        let ClockworkSettings { commit, early } = self.settings;
        match (slo, self.cluster.get(slot)) {
            (Some(slo), Some(known)) => {
                // The margin leaves at least the look-ahead; otherwise an SLO shorter than the sum of both could not be
                // met at all.
                self.early[slot] = slo - (slo - early).max(slo.min(commit + early));
                self.queues[slot].rekey(|request| known.must_end_by(request));
            }
            _ => self.waiting -= self.queues[slot].clear(),
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

    /// The deadline to plan for, earlier than the real one.
    fn due(&self, model: usize, must_end_by: Time) -> Time {
        must_end_by - self.early[model]
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

    /// Records when the head of the queue becomes unreachable.
    fn record_expiry(&mut self, model: usize) {
        let at = self.queues[model].head().map_or(Time::NEVER, |head| {
            let mut head = *head;
            head.must_end_by = self.due(model, head.must_end_by);
            self.cluster.out_of_reach_at(model, &head)
        });
        self.expiry.set(model, at.as_nanos());
    }

    /// Sends work to GPUs until each reaches the look-ahead. Returns when the next one has room.
    fn fill(&mut self, now: Time, out: &mut ClusterActions) -> Time {
        let ahead = self.settings.commit.max(self.cluster.lead_max());
        let (mut passed, mut without_work) = (Vec::new(), GpuClasses::NONE);
        let mut room_at = Time::NEVER;
        while self.waiting > 0
            && let Some(gpu) = self.gpus.earliest(now)
        {
            if gpu.free_at > now && gpu.free_at >= now + ahead {
                room_at = gpu.free_at - ahead + Nanos::new(1);
                break;
            }
            let choices = (0..self.queues.len()).filter_map(|model| Some((self.choose(now, model, gpu)?, model)));
            if !without_work.has(gpu.class)
                && let Some((choice, model)) = choices.min_by_key(|&(choice, model)| (choice.urgency, model))
            {
                self.send(now, model, gpu, choice, out);
                continue;
            }
            // A GPU of this class that is free later has no work either.
            without_work.insert(gpu.class);
            if without_work == self.cluster.classes() {
                break;
            }
            let slot = gpu.id.get() as usize;
            self.gpus.pass(slot);
            passed.push(slot);
        }
        passed.into_iter().for_each(|gpu| self.gpus.unpass(gpu));
        room_at
    }

    /// The largest batch of a model with enough requests in time, and the urgency of the model's most urgent strategy.
    fn choose(&self, now: Time, model: usize, gpu: GpuAvailability) -> Option<Choice> {
        let (queue, known) = (&self.queues[model], self.cluster.get(model)?);
        let mut choice: Option<Choice> = None;
        let (mut skip, mut behind) = (0, queue.items());
        for batch in 1..=known.batch_max(gpu.class) {
            let finish = known.finish(gpu.class, now, gpu.free_at, batch);
            while let Some(oldest) = queue.get(skip)
                && self.due(model, oldest.must_end_by) < finish
            {
                behind -= u64::from(oldest.request.items);
                skip += 1;
            }
            // Larger batches leave fewer requests in time: if this one is not full, no larger one is.
            let Some(oldest) = queue.get(skip).filter(|_| behind >= u64::from(batch)) else { break };
            let (requests, _) = queue.take(skip, batch);
            if requests > 0 {
                let urgency = self.due(model, oldest.must_end_by) - known.latency(gpu.class, batch);
                let urgency = choice.map_or(urgency, |smaller| smaller.urgency.min(urgency));
                choice = Some(Choice { urgency, skip, requests });
            }
        }
        choice
    }

    fn send(&mut self, now: Time, model: usize, gpu: GpuAvailability, choice: Choice, out: &mut ClusterActions) {
        let queue = &mut self.queues[model];
        // A faster GPU may still meet what this one cannot.
        let (kept, lost) = if self.cluster.is_fastest(model, gpu.class) { (0, choice.skip) } else { (choice.skip, 0) };
        for _ in 0..lost {
            if let Some(lost) = queue.pop_front() {
                self.cluster.give_up(now, model, &lost, out);
            }
        }
        let plan = self.cluster.dispatch(now, model, gpu, (kept, choice.requests), queue, out);
        self.gpus.planned(&plan);
        self.waiting -= lost + choice.requests;
        self.record_expiry(model);
    }
}

impl ClusterPolicy for Clockwork {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Arrive { model, request } | ClusterInput::Return { model, request } => {
                let slot = model as usize;
                if self.cluster.enqueue(model, request, self.queues.get_mut(slot), out) {
                    self.waiting += 1;
                    self.record_expiry(slot);
                }
            }
            ClusterInput::Cancel { model, request } => self.cancel(model, &request),
            ClusterInput::GpuUp { gpu, class, free_at } => {
                self.gpus.up(gpu, class, free_at);
                self.gpus_changed();
            }
            ClusterInput::GpuDown(gpu) => {
                self.gpus.down(gpu);
                self.gpus_changed();
            }
            ClusterInput::Done { gpu, .. } => self.gpus.done(now, gpu),
            ClusterInput::Refused { gpu, start, .. } => self.gpus.refused(now, gpu, start),
            ClusterInput::Model { model, known } => self.set_model(model, Some(known)),
            ClusterInput::ModelGone(model) => self.set_model(model, None),
            ClusterInput::Wake => self.wake_at = Time::NEVER,
        }
        self.drop_expired(now, out);
        let wake_at = self.fill(now, out).min(Time::from_nanos(self.expiry.min_key()));
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            out.wake_at(wake_at);
        }
    }

    fn waiting(&self) -> usize {
        self.waiting
    }
}
