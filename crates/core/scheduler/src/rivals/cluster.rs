//! What a cluster-wide policy knows before the first request.

use symphony_types::{DropReason, GpuId, LatencyProfile, Nanos, Time};

use super::deadline_queue::{DeadlineQueue, Waiting};
use crate::actions::{Plan, Request};
use crate::cluster_policy::{ClusterAction, ClusterActions};
use crate::{Delays, QUEUE_REQUESTS_MAX};

/// One model of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterModel {
    /// ℓ(b) on the slowest GPU kind.
    pub profile: LatencyProfile,
    /// The SLO, from arrival to answer.
    pub slo: Nanos,
    /// The expected arrival rate in items per second. Only [`Nexus`](super::Nexus) uses it; a host without foresight
    /// passes a measured rate.
    pub rate_per_second: f64,
}

/// A GPU with its free time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vacancy {
    pub(super) id: GpuId,
    pub(super) free_at: Time,
}

/// Models by slot, and delays.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The models.
    pub models: Vec<ClusterModel>,
    /// Delays, the same for all models.
    pub delays: Delays,
}

impl Cluster {
    /// The start of a batch that is decided now, on a GPU that is free at `gpu_free`.
    pub(super) fn start(&self, now: Time, gpu_free: Time, batch: u32) -> Time {
        (now + self.delays.lead(batch)).max(gpu_free)
    }

    /// The end of such a batch.
    pub(super) fn finish(&self, model: usize, now: Time, gpu_free: Time, batch: u32) -> Time {
        self.start(now, gpu_free, batch) + self.models[model].profile.latency(batch)
    }

    /// Deadline − reply delay. [`Time::NEVER`] becomes the moment before it, so that an impossible batch never appears
    /// to meet it.
    pub(super) fn must_end_by(&self, request: &Request) -> Time {
        (request.deadline - self.delays.reply).min(Time::NEVER - Nanos::new(1))
    }

    /// The request as a queue entry, with at least one item.
    pub(super) fn waiting(&self, request: Request) -> Waiting {
        let request = Request { items: request.items.max(1), ..request };
        Waiting { request, must_end_by: self.must_end_by(&request) }
    }

    /// Whether an idle GPU could still meet the request.
    pub(super) fn is_reachable(&self, model: usize, now: Time, waiting: &Waiting) -> bool {
        waiting.must_end_by >= self.finish(model, now, Time::ZERO, waiting.request.items)
    }

    /// The first moment at which [`Cluster::is_reachable`] is false.
    pub(super) fn out_of_reach_at(&self, model: usize, waiting: &Waiting) -> Time {
        let items = waiting.request.items;
        let needed = self.delays.lead(items) + self.models[model].profile.latency(items);
        // A duration beyond the time since the origin was never reachable.
        match waiting.must_end_by.as_nanos().checked_sub(needed.get()) {
            Some(last) => Time::from_nanos(last) + Nanos::new(1),
            None => Time::ZERO,
        }
    }

    /// The largest batch of at most `items` items that, decided now, ends by `by`; zero if there is none.
    pub(super) fn batch_within(&self, model: usize, now: Time, gpu_free: Time, items: u64, by: Time) -> u32 {
        let most = items.min(u64::from(self.models[model].profile.batch_max())) as u32;
        let (mut fits, mut too_large) = (0, most + 1);
        while too_large - fits > 1 {
            let middle = fits.midpoint(too_large);
            if self.finish(model, now, gpu_free, middle) <= by { fits = middle } else { too_large = middle }
        }
        fits
    }

    /// Queues the request, or drops it if the queue is full.
    pub(super) fn enqueue(
        &self,
        model: usize,
        request: Request,
        queue: &mut DeadlineQueue,
        out: &mut ClusterActions,
    ) -> bool {
        if queue.len() >= QUEUE_REQUESTS_MAX {
            let model = model as u32;
            out.list.push(ClusterAction::Drop { model, request, reason: DropReason::QueueFull, cause: None });
            return false;
        }
        queue.insert(self.waiting(request));
        true
    }

    /// Drops the request.
    pub(super) fn give_up(&self, now: Time, model: usize, waiting: &Waiting, out: &mut ClusterActions) {
        let reason = if waiting.request.deadline <= now {
            DropReason::QueueExpired
        } else if self.is_reachable(model, now, waiting) {
            DropReason::ProtectBatch
        } else {
            DropReason::SloUnreachable
        };
        out.list.push(ClusterAction::Drop { model: model as u32, request: waiting.request, reason, cause: None });
    }

    /// Sends the first `requests` requests of the queue to the GPU, as one batch.
    pub(super) fn dispatch(
        &self,
        now: Time,
        model: usize,
        gpu: Vacancy,
        requests: usize,
        queue: &mut DeadlineQueue,
        out: &mut ClusterActions,
    ) -> Plan {
        let first = out.planned.len();
        let mut must_end_by = Time::NEVER;
        for _ in 0..requests {
            let Some(waiting) = queue.pop_front() else { break };
            must_end_by = must_end_by.min(waiting.must_end_by);
            out.planned.push(waiting.request);
        }
        let batch = out.planned[first..].iter().map(|request| request.items).sum();
        let start = self.start(now, gpu.free_at, batch);
        let end = start + self.models[model].profile.latency(batch);
        let requests = (out.planned.len() - first) as u32;
        let plan = Plan { gpu: gpu.id, start, end, batch, must_end_by, first: first as u32, requests, why: None };
        out.list.push(ClusterAction::Execute { model: model as u32, plan });
        plan
    }
}
