//! Clockwork's controller: strategies per model and batch size, and GPUs filled a little ahead of time.

use symphony_types::{Nanos, Time};

use super::cluster::{Cluster, Vacancy};
use super::deadline_queue::DeadlineQueue;
use super::gpu_book::GpuBook;
use crate::MinTree;
use crate::cluster_policy::{ClusterAction, ClusterActions, ClusterInput, ClusterPolicy};

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
/// loaded.
#[derive(Clone, Debug)]
pub struct Clockwork {
    cluster: Cluster,
    commit: Nanos,
    /// The margin that is subtracted from each model's deadlines.
    early: Vec<Nanos>,
    queues: Vec<DeadlineQueue>,
    gpus: GpuBook,
    /// Per model: when the head of its queue becomes unreachable.
    expiry: MinTree,
    waiting: usize,
    wake_at: Time,
}

/// A possible batch; `skip` requests before it are lost.
#[derive(Clone, Copy, Debug)]
struct Choice {
    urgency: Time,
    skip: usize,
    requests: usize,
}

impl Clockwork {
    /// For these models; GPUs are added later.
    #[must_use]
    pub fn new(cluster: Cluster, settings: ClockworkSettings) -> Self {
        // The margin leaves at least the look-ahead; otherwise an SLO shorter than the sum of both could not be met at
        // all.
        let early = |slo: Nanos| slo - (slo - settings.early).max(slo.min(settings.commit + settings.early));
        let models = cluster.models.len();
        Self {
            commit: settings.commit,
            early: cluster.models.iter().map(|model| early(model.slo)).collect(),
            queues: vec![DeadlineQueue::default(); models],
            gpus: GpuBook::new(),
            expiry: MinTree::new(models),
            waiting: 0,
            wake_at: Time::NEVER,
            cluster,
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
        while self.waiting > 0
            && let Some(gpu) = self.gpus.earliest(now)
        {
            let ahead = self.commit.max(self.cluster.delays.lead(1));
            if gpu.free_at > now && gpu.free_at >= now + ahead {
                return gpu.free_at - ahead + Nanos::new(1);
            }
            let choices =
                (0..self.queues.len()).filter_map(|model| Some((self.choose(now, model, gpu.free_at)?, model)));
            let Some((choice, model)) = choices.min_by_key(|&(choice, model)| (choice.urgency, model)) else { break };
            self.send(now, model, gpu, choice, out);
        }
        Time::NEVER
    }

    /// The largest batch of a model with enough requests in time, and the urgency of the model's most urgent strategy.
    fn choose(&self, now: Time, model: usize, gpu_free: Time) -> Option<Choice> {
        let (queue, profile) = (&self.queues[model], &self.cluster.models[model].profile);
        let mut choice: Option<Choice> = None;
        let (mut skip, mut behind) = (0, queue.items());
        for batch in 1..=profile.batch_max() {
            let finish = self.cluster.finish(model, now, gpu_free, batch);
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
                let urgency = self.due(model, oldest.must_end_by) - profile.latency(batch);
                let urgency = choice.map_or(urgency, |smaller| smaller.urgency.min(urgency));
                choice = Some(Choice { urgency, skip, requests });
            }
        }
        choice
    }

    fn send(&mut self, now: Time, model: usize, gpu: Vacancy, choice: Choice, out: &mut ClusterActions) {
        let queue = &mut self.queues[model];
        for _ in 0..choice.skip {
            if let Some(lost) = queue.pop_front() {
                self.cluster.give_up(now, model, &lost, out);
            }
        }
        let plan = self.cluster.dispatch(now, model, gpu, choice.requests, queue, out);
        self.gpus.planned(&plan);
        self.waiting -= choice.skip + choice.requests;
        self.record_expiry(model);
    }
}

impl ClusterPolicy for Clockwork {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Arrive { model, request } | ClusterInput::Return { model, request } => {
                let slot = model as usize;
                if self.cluster.enqueue(slot, request, &mut self.queues[slot], out) {
                    self.waiting += 1;
                    self.record_expiry(slot);
                }
            }
            ClusterInput::GpuUp { gpu, free_at } => self.gpus.up(gpu, free_at),
            ClusterInput::GpuDown(gpu) => self.gpus.down(gpu),
            ClusterInput::Done { gpu, .. } => self.gpus.done(now, gpu),
            ClusterInput::Wake => self.wake_at = Time::NEVER,
        }
        self.drop_expired(now, out);
        let wake_at = self.fill(now, out).min(Time::from_nanos(self.expiry.min_key()));
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            out.list.push(ClusterAction::WakeAt(wake_at));
        }
    }

    fn waiting(&self) -> usize {
        self.waiting
    }
}
