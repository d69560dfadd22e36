//! When each GPU will be free, from sent plans and reported ends.

use std::collections::VecDeque;

use symphony_types::{GpuId, Time};

use super::cluster::Vacancy;
use crate::MinTree;
use crate::actions::Plan;

#[derive(Clone, Debug, Default)]
struct Gpu {
    /// (start, end) of plans whose end was not reported yet, oldest first.
    plans: VecDeque<(Time, Time)>,
    is_up: bool,
    /// Free time if there is no plan.
    free_at: Time,
}

/// Predicted free times. An overdue GPU is not offered until it reports.
#[derive(Clone, Debug)]
pub(super) struct GpuBook {
    gpus: Vec<Gpu>,
    /// Free times of usable GPUs.
    free: MinTree,
}

impl GpuBook {
    pub(super) fn new() -> Self {
        Self { gpus: Vec::new(), free: MinTree::new(0) }
    }

    /// GPUs known so far, usable or not.
    pub(super) fn len(&self) -> usize {
        self.gpus.len()
    }

    pub(super) fn is_up(&self, gpu: usize) -> bool {
        self.gpus.get(gpu).is_some_and(|gpu| gpu.is_up)
    }

    /// Number of plans that have not ended.
    pub(super) fn plans(&self, gpu: usize) -> usize {
        self.gpus[gpu].plans.len()
    }

    pub(super) fn vacancy(&self, gpu: usize) -> Vacancy {
        Vacancy { id: GpuId::new(gpu as u32), free_at: self.gpus[gpu].free_at }
    }

    pub(super) fn up(&mut self, gpu: GpuId, free_at: Time) {
        let slot = gpu.get() as usize;
        if slot >= self.gpus.len() {
            self.gpus.resize(slot + 1, Gpu::default());
            self.free.grow(slot + 1);
        }
        self.gpus[slot] = Gpu { plans: VecDeque::new(), is_up: true, free_at };
        self.free.set(slot, free_at.as_nanos());
    }

    pub(super) fn down(&mut self, gpu: GpuId) {
        let slot = gpu.get() as usize;
        if slot < self.gpus.len() {
            self.gpus[slot] = Gpu::default();
            self.free.set(slot, MinTree::EMPTY);
        }
    }

    pub(super) fn planned(&mut self, plan: &Plan) {
        let slot = plan.gpu.get() as usize;
        let gpu = &mut self.gpus[slot];
        gpu.plans.push_back((plan.start, plan.end));
        gpu.free_at = plan.end;
        self.free.set(slot, plan.end.as_nanos());
    }

    /// The oldest plan has ended; the others follow as planned, or as soon as the GPU is free.
    pub(super) fn done(&mut self, now: Time, gpu: GpuId) {
        let slot = gpu.get() as usize;
        let Some(gpu) = self.gpus.get_mut(slot).filter(|gpu| gpu.is_up) else { return };
        gpu.plans.pop_front();
        let mut free_at = now;
        for (start, end) in &mut gpu.plans {
            let latency = end.since(*start);
            *start = (*start).max(free_at);
            *end = *start + latency;
            free_at = *end;
        }
        gpu.free_at = free_at;
        self.free.set(slot, free_at.as_nanos());
    }

    /// Removes all plans of the GPU.
    pub(super) fn preempted(&mut self, now: Time, gpu: usize) {
        self.gpus[gpu].plans.clear();
        self.gpus[gpu].free_at = now;
        self.free.set(gpu, now.as_nanos());
    }

    /// The usable GPU with the earliest free time.
    pub(super) fn earliest(&mut self, now: Time) -> Option<Vacancy> {
        while let Some((slot, free_at)) = self.free.min() {
            if self.gpus[slot].plans.front().is_some_and(|&(_, end)| end < now) {
                self.free.set(slot, MinTree::EMPTY);
                continue;
            }
            return Some(Vacancy { id: GpuId::new(slot as u32), free_at: Time::from_nanos(free_at) });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    fn earliest(book: &mut GpuBook, now: Time) -> Option<(u32, u64)> {
        book.earliest(now).map(|gpu| (gpu.id.get(), gpu.free_at.as_nanos()))
    }

    fn plan(gpu: u32, start: u64, end: u64) -> Plan {
        let must_end_by = Time::NEVER;
        Plan {
            gpu: GpuId::new(gpu),
            start: at(start),
            end: at(end),
            batch: 1,
            must_end_by,
            first: 0,
            requests: 1,
            why: None,
        }
    }

    #[test]
    fn ends_that_differ_from_the_plan_move_what_follows() {
        let mut book = GpuBook::new();
        book.up(GpuId::new(0), at(0));
        book.planned(&plan(0, 0, 10));
        book.planned(&plan(0, 10, 30));
        assert_eq!(earliest(&mut book, at(5)), Some((0, 30)));
        assert_eq!(earliest(&mut book, at(11)), None, "late, and nobody knows how much");
        book.done(at(12), GpuId::new(0));
        assert_eq!((earliest(&mut book, at(12)), book.plans(0)), (Some((0, 32)), 1));
        book.done(at(31), GpuId::new(0));
        assert_eq!(earliest(&mut book, at(31)), Some((0, 31)));
    }

    #[test]
    fn gpus_come_go_and_lose_their_plans() {
        let mut book = GpuBook::new();
        book.up(GpuId::new(1), at(3));
        assert_eq!((book.len(), book.is_up(0), book.is_up(1)), (2, false, true));
        book.planned(&plan(1, 3, 9));
        book.preempted(at(4), 1);
        assert_eq!(earliest(&mut book, at(4)), Some((1, 4)));
        book.down(GpuId::new(1));
        book.done(at(5), GpuId::new(1));
        assert_eq!((earliest(&mut book, at(5)), book.is_up(1)), (None, false));
    }
}
