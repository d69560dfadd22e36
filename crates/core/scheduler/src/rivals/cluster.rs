//! The models and GPU classes that a cluster-wide policy knows, and what follows for a request.

use std::sync::Arc;

use symphony_types::{DropReason, GpuClass, GpuClasses, GpuId, LatencyProfile, Nanos, Time};

use super::deadline_queue::{DeadlineQueue, Waiting};
use crate::actions::{Plan, Request};
use crate::cluster::model::ClusterModel;
use crate::cluster_policy::{ClusterAction, ClusterActions};
use crate::{MODELS_MAX, QUEUE_REQUESTS_MAX};

/// When a GPU is free.
#[derive(Clone, Copy, Debug)]
pub(super) struct GpuAvailability {
    pub(super) id: GpuId,
    pub(super) class: GpuClass,
    pub(super) free_at: Time,
}

#[derive(Clone, Debug)]
struct Known {
    model: Arc<ClusterModel>,
    /// The shortest ℓ(b) over the present classes; over all of the model's if none is.
    fastest: Option<LatencyProfile>,
}

/// Models by slot, and the classes of the usable GPUs.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    models: Vec<Option<Known>>,
    classes: GpuClasses,
    lead_max: Nanos,
}

impl Cluster {
    /// Slots so far, used or not.
    pub(super) fn slots(&self) -> usize {
        self.models.len()
    }

    pub(super) fn get(&self, model: usize) -> Option<&Arc<ClusterModel>> {
        self.models.get(model)?.as_ref().map(|known| &known.model)
    }

    /// The longest lead of a single item over all models.
    pub(super) fn lead_max(&self) -> Nanos {
        self.lead_max
    }

    /// Sets or removes a model; returns its slot, none if there can be no such slot.
    pub(super) fn set(&mut self, model: u32, known: Option<Arc<ClusterModel>>) -> Option<usize> {
        let slot = model as usize;
        if slot >= self.models.len() {
            if slot >= MODELS_MAX || known.is_none() {
                return None;
            }
            self.models.resize(slot + 1, None);
        }
        let classes = self.classes;
        let lead = known.as_ref().map_or(Nanos::ZERO, |model| model.delays.lead(1));
        let known = known.map(|model| Known { fastest: fastest(&model, classes), model });
        let former = std::mem::replace(&mut self.models[slot], known);
        self.lead_max = self.lead_max.max(lead);
        if former.is_some_and(|former| former.model.delays.lead(1) == self.lead_max) {
            // It may have been the longest.
            let leads = self.models.iter().flatten().map(|known| known.model.delays.lead(1));
            self.lead_max = leads.max().unwrap_or(Nanos::ZERO);
        }
        Some(slot)
    }

    /// Sets the classes of the usable GPUs; returns whether they have changed.
    pub(super) fn set_classes(&mut self, classes: GpuClasses) -> bool {
        if classes == self.classes {
            return false;
        }
        self.classes = classes;
        for known in self.models.iter_mut().flatten() {
            known.fastest = fastest(&known.model, classes);
        }
        true
    }

    pub(super) fn classes(&self) -> GpuClasses {
        self.classes
    }

    /// Whether no usable GPU runs the model faster than those of this class.
    pub(super) fn is_fastest(&self, model: usize, class: GpuClass) -> bool {
        let known = self.models.get(model).and_then(Option::as_ref);
        known.is_none_or(|known| {
            known.fastest.as_ref().is_none_or(|fastest| known.model.latency(class, 1) <= fastest.latency(1))
        })
    }

    /// The end of a batch that is decided now; never if the model does not run there.
    pub(super) fn finish(&self, model: usize, now: Time, gpu: GpuAvailability, batch: u32) -> Time {
        self.get(model).map_or(Time::NEVER, |known| known.finish(gpu.class, now, gpu.free_at, batch))
    }

    /// The request as a queue entry, with at least one item.
    pub(super) fn waiting(&self, model: usize, request: Request) -> Waiting {
        let request = Request { items: request.items.max(1), ..request };
        let must_end_by = self.get(model).map_or(Time::ZERO, |known| known.must_end_by(&request));
        Waiting { request, must_end_by }
    }

    /// How long before its deadline a request must be decided on, on an idle GPU of the fastest class.
    fn needed(&self, model: usize, items: u32) -> Nanos {
        let known = self.models.get(model).and_then(Option::as_ref);
        known.map_or(Nanos::MAX, |known| {
            let latency = known.fastest.as_ref().map_or(Nanos::MAX, |profile| profile.latency(items));
            known.model.delays.lead(items) + latency
        })
    }

    /// Whether an idle GPU could still meet the request.
    pub(super) fn is_reachable(&self, model: usize, now: Time, waiting: &Waiting) -> bool {
        waiting.must_end_by >= now + self.needed(model, waiting.request.items)
    }

    /// The first moment at which [`Cluster::is_reachable`] is false.
    pub(super) fn out_of_reach_at(&self, model: usize, waiting: &Waiting) -> Time {
        let needed = self.needed(model, waiting.request.items);
        // A duration beyond the time since the origin was never reachable.
        match waiting.must_end_by.as_nanos().checked_sub(needed.get()) {
            Some(last) => Time::from_nanos(last) + Nanos::new(1),
            None => Time::ZERO,
        }
    }

    /// The largest batch of at most `items` items that, decided now, ends by `by`; zero if there is none.
    pub(super) fn batch_within(&self, model: usize, now: Time, gpu: GpuAvailability, items: u64, by: Time) -> u32 {
        self.get(model).map_or(0, |known| known.batch_within(gpu.class, now, gpu.free_at, items, by))
    }

    /// Queues the request, or drops it if the queue is full or no such model is known.
    pub(super) fn enqueue(
        &self,
        model: u32,
        request: Request,
        queue: Option<&mut DeadlineQueue>,
        out: &mut ClusterActions,
    ) -> bool {
        let slot = model as usize;
        let Some(queue) = queue.filter(|_| self.get(slot).is_some()) else {
            out.give_up(model, request, DropReason::SloUnreachable);
            return false;
        };
        if queue.len() >= QUEUE_REQUESTS_MAX {
            out.give_up(model, request, DropReason::QueueFull);
            return false;
        }
        queue.insert(self.waiting(slot, request));
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
        out.give_up(model as u32, waiting.request, reason);
    }

    /// Sends requests of the queue to the GPU, as one batch: `requests` of them, after the first `skip`.
    pub(super) fn dispatch(
        &self,
        now: Time,
        model: usize,
        gpu: GpuAvailability,
        (skip, requests): (usize, usize),
        queue: &mut DeadlineQueue,
        out: &mut ClusterActions,
    ) -> Plan {
        let first = out.planned.len();
        let mut must_end_by = Time::NEVER;
        for waiting in queue.drain(skip, requests) {
            must_end_by = must_end_by.min(waiting.must_end_by);
            out.planned.push(waiting.request);
        }
        let batch = out.planned[first..].iter().map(|request| request.items).sum();
        let (start, end) = self.get(model).map_or((now, Time::NEVER), |known| {
            let start = known.start(now, gpu.free_at, batch);
            (start, start + known.latency(gpu.class, batch))
        });
        let requests = (out.planned.len() - first) as u32;
        let plan = Plan { gpu: gpu.id, start, end, batch, must_end_by, first: first as u32, requests, why: None };
        out.list.push(ClusterAction::Execute { model: model as u32, plan });
        plan
    }
}

/// The shortest latency of each batch size over these classes; over all of the model's if it runs on none of them.
fn fastest(model: &ClusterModel, classes: GpuClasses) -> Option<LatencyProfile> {
    let mut present = model.profiles.iter().filter(|(class, _)| classes.has(*class)).map(|(_, profile)| profile);
    let mut all = model.profiles.iter().map(|(_, profile)| profile);
    match present.next() {
        Some(first) => present.fold(Some(first.clone()), faster_of),
        None => all.next().and_then(|first| all.fold(Some(first.clone()), faster_of)),
    }
}

fn faster_of(a: Option<LatencyProfile>, b: &LatencyProfile) -> Option<LatencyProfile> {
    let a = a?;
    let shortest = |batch| a.latency(batch).min(b.latency(batch));
    // The smaller of two tables that do not decrease does not either.
    LatencyProfile::from_table(&(1..=a.batch_max().max(b.batch_max())).map(shortest).collect::<Vec<_>>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_class_that_is_there_decides_what_is_within_reach() {
        let class = |number| GpuClass::new(number).unwrap();
        let profile = |beta_ms| LatencyProfile::from_line(1.0, beta_ms, 8).unwrap();
        let profiles =
            [(class(0), profile(9.0)), (class(1), profile(4.0))].into_iter().collect::<crate::ClassProfiles>();
        let mut cluster = Cluster::default();
        assert_eq!(cluster.set(2, Some(Arc::new(ClusterModel::new(profiles, Nanos::from_millis(50))))), Some(2));
        let waits = |cluster: &Cluster| {
            let (id, items, weight) = (symphony_types::RequestId::default(), 1, symphony_types::RequestValue::ONE);
            let deadline = Time::ZERO + Nanos::from_millis(20);
            let waiting = cluster.waiting(2, Request { id, deadline, items, weight, variant: 0 });
            cluster.out_of_reach_at(2, &waiting).as_nanos()
        };
        assert_eq!(waits(&cluster), 15_000_001, "without GPUs, on the fastest that may come");
        assert!(cluster.set_classes([class(0)].into_iter().collect()));
        assert!(!cluster.set_classes([class(0)].into_iter().collect()));
        assert_eq!(waits(&cluster), 10_000_001);
        assert!(cluster.set_classes([class(0), class(1)].into_iter().collect()));
        assert_eq!(waits(&cluster), 15_000_001);
        assert_eq!((cluster.set(2, None), cluster.get(2)), (Some(2), None));
        assert_eq!(cluster.set(u32::MAX, None), None);
    }
}
