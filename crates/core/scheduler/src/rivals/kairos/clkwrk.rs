//! Clockwork's controller without its batches, as the Kairos paper uses it.

use std::collections::VecDeque;
use std::sync::Arc;

use symphony_types::{DropReason, GpuId, Nanos, Time};

use super::ribbon::PLANS_MAX;
use crate::QUEUE_REQUESTS_MAX;
use crate::actions::Request;
use crate::cluster::facts::ClusterFacts;
use crate::cluster::model::ClusterModel;
use crate::cluster_policy::{ClusterActions, ClusterInput, ClusterPolicy};
use crate::rivals::cluster::{Cluster, GpuAvailability};
use crate::rivals::gpu_book::GpuBook;
use crate::rivals::unplaced_requests::UnplacedRequests;

/// Optimises that what is accepted is in time, at the cost of large queries for which no fast GPU is left.
///
/// The Kairos paper, section 7, after *Serving DNNs like Clockwork* (OSDI 2020). Each GPU has a queue of its own, first
/// come, first served. A query goes at once to the queue where it is predicted to end first; if that is too late, it is
/// in time nowhere, and dropped. Where a prediction proves wrong, a query that has become late is placed again when its
/// turn comes. The paper does not say which of several queues that are in time is taken. While no GPU runs its model, a
/// query waits for one.
#[derive(Clone, Debug)]
pub struct Clkwrk {
    cluster: Cluster,
    gpus: GpuBook,
    /// By GPU.
    queues: Vec<Queue>,
    /// Queries in these queues.
    waiting: usize,
    /// Queries that no GPU runs.
    unplaced: UnplacedRequests,
    wake_at: Time,
}

/// What waits for one GPU.
#[derive(Clone, Debug, Default)]
struct Queue {
    /// (model, request, predicted latency), the first one first.
    queries: VecDeque<(u32, Request, Nanos)>,
    /// The sum of these latencies.
    work: Nanos,
}

impl Queue {
    fn pop(&mut self) -> Option<(u32, Request, Nanos)> {
        let first = self.queries.pop_front()?;
        self.work -= first.2;
        Some(first)
    }

    /// Keeps some; returns how many have gone.
    fn retain(&mut self, keeps: impl Fn(u32, &Request) -> bool) -> usize {
        let before = self.queries.len();
        self.queries.retain(|(model, request, _)| keeps(*model, request));
        self.work = self.queries.iter().fold(Nanos::ZERO, |sum, query| sum + query.2);
        before - self.queries.len()
    }
}

impl Clkwrk {
    /// Without models and GPUs, which come as inputs.
    #[must_use]
    pub fn new(facts: &ClusterFacts) -> Self {
        Self {
            cluster: Cluster::default(),
            gpus: GpuBook::new(facts.plans_max.min(PLANS_MAX)),
            queues: Vec::new(),
            waiting: 0,
            unplaced: UnplacedRequests::default(),
            wake_at: Time::NEVER,
        }
    }

    /// Puts a query, which is counted as waiting, into the queue where it ends first; or drops it.
    fn place(&mut self, now: Time, model: u32, request: Request, out: &mut ClusterActions) {
        let slot = model as usize;
        let waiting = self.cluster.waiting(slot, request);
        let up = (0..self.gpus.len()).filter(|&gpu| self.gpus.is_up(gpu));
        let ends = up.map(|gpu| {
            let availability = self.gpus.availability(gpu);
            let free_at = availability.free_at.max(now) + self.queues[gpu].work;
            (self.cluster.finish(slot, now, GpuAvailability { free_at, ..availability }, request.items), gpu)
        });
        match ends.min() {
            Some((end, gpu)) if end <= waiting.must_end_by && self.waiting <= QUEUE_REQUESTS_MAX => {
                let class = self.gpus.availability(gpu).class;
                let latency = self.cluster.get(slot).map_or(Nanos::ZERO, |known| known.latency(class, request.items));
                let queue = &mut self.queues[gpu];
                queue.work += latency;
                queue.queries.push_back((model, request, latency));
            }
            Some((end, _)) if end < Time::NEVER => {
                self.waiting -= 1;
                out.give_up(model, request, DropReason::SloUnreachable);
            }
            _ => {
                self.waiting -= 1;
                self.unplaced.admit(&self.cluster, model, request, out);
            }
        }
    }

    fn arrive(&mut self, now: Time, model: u32, request: Request, out: &mut ClusterActions) {
        self.waiting += 1;
        self.place(now, model, request, out);
    }

    fn cancel(&mut self, model: u32, request: &Request) {
        let other = |of: u32, queued: &Request| of != model || queued.id != request.id;
        self.waiting -= self.queues.iter_mut().map(|queue| queue.retain(other)).sum::<usize>();
        self.unplaced.cancel(&self.cluster, model as usize, request);
    }

    fn gpu_down(&mut self, now: Time, gpu: GpuId, out: &mut ClusterActions) {
        self.gpus.down(gpu);
        self.cluster.set_classes(self.gpus.classes());
        let Some(queue) = self.queues.get_mut(gpu.get() as usize) else { return };
        for (model, request, _) in std::mem::take(queue).queries {
            self.place(now, model, request, out);
        }
    }

    fn set_model(&mut self, now: Time, model: u32, known: Option<Arc<ClusterModel>>, out: &mut ClusterActions) {
        let is_gone = known.is_none();
        self.cluster.set(model, known);
        self.unplaced.model_changed(&self.cluster, model as usize);
        let mut moved = Vec::new();
        for queue in &mut self.queues {
            // Its latencies may be others.
            moved.extend(queue.queries.iter().filter(|query| query.0 == model).map(|query| query.1));
            queue.retain(|of, _| of != model);
        }
        if is_gone {
            self.waiting -= moved.len();
        } else {
            moved.into_iter().for_each(|request| self.place(now, model, request, out));
        }
    }

    /// Sends the heads of queues whose GPU's turn it is. Returns when the next turn comes.
    fn feed(&mut self, now: Time, out: &mut ClusterActions) -> Time {
        loop {
            let (mut next, mut late) = (Time::NEVER, Vec::new());
            for gpu in 0..self.queues.len() {
                next = next.min(self.feed_one(now, gpu, &mut late, out));
            }
            if late.is_empty() {
                return next;
            }
            // In time on another GPU, or dropped; it can be late once more only where a plan was sent since.
            for (model, request) in late {
                self.place(now, model, request, out);
            }
        }
    }

    /// Gives one GPU its next query; adds queries that have become late to `late`.
    fn feed_one(&mut self, now: Time, gpu: usize, late: &mut Vec<(u32, Request)>, out: &mut ClusterActions) -> Time {
        while let Some(&(model, request, _)) = self.queues[gpu].queries.front() {
            let availability = self.gpus.availability(gpu);
            let Some(known) = self.cluster.get(model as usize) else { return Time::NEVER };
            let due = known.must_end_by(&request);
            if known.finish(availability.class, now, availability.free_at, request.items) > due {
                self.queues[gpu].pop();
                late.push((model, request));
                continue;
            }
            let lead = known.delays.lead(request.items);
            let has_room = self.gpus.has_room(gpu);
            if self.gpus.is_overdue(gpu, now) || !has_room || availability.free_at > now + lead {
                let late_at = due - known.latency(availability.class, request.items) - lead + Nanos::new(1);
                let turn = availability.free_at - lead;
                return if has_room && turn > now { turn.min(late_at) } else { late_at };
            }
            let start = known.start(now, availability.free_at, request.items);
            let plan = out.plan(model, known, (availability.id, availability.class), start, [request]);
            self.queues[gpu].pop();
            self.waiting -= 1;
            if let Some(plan) = plan {
                self.gpus.planned(&plan);
            }
        }
        Time::NEVER
    }
}

impl ClusterPolicy for Clkwrk {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Arrive { model, request } | ClusterInput::Return { model, request } => {
                self.arrive(now, model, request, out);
            }
            ClusterInput::Cancel { model, request } => self.cancel(model, &request),
            ClusterInput::GpuUp { gpu, class, free_at } => {
                if self.gpus.up(gpu, class, free_at) && self.gpus.len() > self.queues.len() {
                    self.queues.resize(self.gpus.len(), Queue::default());
                }
                self.cluster.set_classes(self.gpus.classes());
                for (model, request) in self.unplaced.take() {
                    self.arrive(now, model as u32, request, out);
                }
            }
            ClusterInput::GpuDown(gpu) => self.gpu_down(now, gpu, out),
            ClusterInput::Done { gpu, .. } => self.gpus.done(now, gpu),
            ClusterInput::Refused { gpu, start, .. } => self.gpus.refused(now, gpu, start),
            ClusterInput::Model { model, known } => self.set_model(now, model, Some(known), out),
            ClusterInput::ModelGone(model) => self.set_model(now, model, None, out),
            ClusterInput::Wake => self.wake_at = Time::NEVER,
        }
        let wake_at = self.feed(now, out).min(self.unplaced.drop_lost(&self.cluster, now, out));
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            out.wake_at(wake_at);
        }
    }

    fn waiting(&self) -> usize {
        self.waiting + self.unplaced.len()
    }
}
