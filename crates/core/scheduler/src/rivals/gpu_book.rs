//! When each GPU will be free, from sent plans and reported ends.

use std::collections::VecDeque;

use symphony_types::{GPU_CLASSES_MAX, GpuClass, GpuClasses, GpuId, Time};

use super::cluster::GpuAvailability;
use crate::actions::Plan;
use crate::{GPUS_MAX, MinTree};

#[derive(Clone, Debug, Default)]
struct Gpu {
    /// (start, end) of plans whose end was not reported yet, oldest first.
    plans: VecDeque<(Time, Time)>,
    is_up: bool,
    class: GpuClass,
    /// Free time if there is no plan.
    free_at: Time,
}

/// Predicted free times. An overdue GPU is not offered until it reports.
#[derive(Clone, Debug)]
pub(super) struct GpuBook {
    gpus: Vec<Gpu>,
    /// Free times of usable GPUs.
    free: MinTree,
    /// The most plans of a GPU.
    plans_max: usize,
    /// Usable GPUs, by class.
    of_class: [u32; GPU_CLASSES_MAX],
}

impl GpuBook {
    /// Without GPUs; each will take this many plans, at least one.
    pub(super) fn new(plans_max: u32) -> Self {
        let plans_max = plans_max.max(1) as usize;
        Self { gpus: Vec::new(), free: MinTree::new(0), plans_max, of_class: [0; GPU_CLASSES_MAX] }
    }

    /// The classes of the usable GPUs.
    pub(super) fn classes(&self) -> GpuClasses {
        GpuClass::all().filter(|class| self.of_class[class.index()] > 0).collect()
    }

    /// Usable GPUs of a class.
    pub(super) fn of_class(&self, class: GpuClass) -> u32 {
        self.of_class[class.index()]
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

    pub(super) fn availability(&self, gpu: usize) -> GpuAvailability {
        let Gpu { class, free_at, .. } = self.gpus[gpu];
        GpuAvailability { id: GpuId::new(gpu as u32), class, free_at }
    }

    /// The GPU is usable; returns whether there can be such a GPU.
    pub(super) fn up(&mut self, gpu: GpuId, class: GpuClass, free_at: Time) -> bool {
        let slot = gpu.get() as usize;
        if slot >= GPUS_MAX {
            return false;
        }
        self.down(gpu);
        if slot >= self.gpus.len() {
            self.gpus.resize(slot + 1, Gpu::default());
            self.free.grow(slot + 1);
        }
        self.gpus[slot] = Gpu { plans: VecDeque::new(), is_up: true, class, free_at };
        self.free.set(slot, free_at.as_nanos());
        self.of_class[class.index()] += 1;
        true
    }

    pub(super) fn down(&mut self, gpu: GpuId) {
        let slot = gpu.get() as usize;
        if let Some(gpu) = self.gpus.get_mut(slot) {
            self.of_class[gpu.class.index()] -= u32::from(gpu.is_up);
            *gpu = Gpu::default();
            self.free.set(slot, MinTree::EMPTY);
        }
    }

    pub(super) fn planned(&mut self, plan: &Plan) {
        let slot = plan.gpu.get() as usize;
        let gpu = &mut self.gpus[slot];
        gpu.plans.push_back((plan.start, plan.end));
        gpu.free_at = plan.end;
        self.offer(slot);
    }

    /// Whether the GPU takes one more plan.
    pub(super) fn has_room(&self, gpu: usize) -> bool {
        self.gpus[gpu].plans.len() < self.plans_max
    }

    /// Whether the GPU should have ended a plan by now, and has not reported its end.
    pub(super) fn is_overdue(&self, gpu: usize, now: Time) -> bool {
        self.gpus[gpu].plans.front().is_some_and(|&(_, end)| end < now)
    }

    /// The GPU may be planned on, unless it has all the plans that it takes.
    fn offer(&mut self, slot: usize) {
        let gpu = &self.gpus[slot];
        let is_offered = gpu.is_up && self.has_room(slot);
        self.free.set(slot, if is_offered { gpu.free_at.as_nanos() } else { MinTree::EMPTY });
    }

    /// Leaves the GPU out of [`GpuBook::earliest`] until [`GpuBook::unpass`].
    pub(super) fn pass(&mut self, gpu: usize) {
        self.free.set(gpu, MinTree::EMPTY);
    }

    /// Offers a GPU again that was passed.
    pub(super) fn unpass(&mut self, gpu: usize) {
        self.offer(gpu);
    }

    /// The GPU did not accept the plan that was to start then.
    pub(super) fn refused(&mut self, now: Time, gpu: GpuId, start: Time) {
        let slot = gpu.get() as usize;
        let Some(gpu) = self.gpus.get_mut(slot).filter(|gpu| gpu.is_up) else { return };
        // An end that was reported late may have moved the start.
        let Some(at) = gpu.plans.iter().position(|(planned, _)| *planned >= start) else { return };
        gpu.plans.remove(at);
        gpu.free_at = gpu.plans.back().map_or(now, |&(_, end)| end);
        self.offer(slot);
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
        self.offer(slot);
    }

    /// Removes all plans of the GPU.
    pub(super) fn preempted(&mut self, now: Time, gpu: usize) {
        self.gpus[gpu].plans.clear();
        self.gpus[gpu].free_at = now;
        self.free.set(gpu, now.as_nanos());
    }

    /// The usable GPU with the earliest free time.
    pub(super) fn earliest(&mut self, now: Time) -> Option<GpuAvailability> {
        while let Some((slot, free_at)) = self.free.min() {
            if self.is_overdue(slot, now) {
                self.free.set(slot, MinTree::EMPTY);
                continue;
            }
            let class = self.gpus[slot].class;
            return Some(GpuAvailability { id: GpuId::new(slot as u32), class, free_at: Time::from_nanos(free_at) });
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
        let mut book = GpuBook::new(u32::MAX);
        assert!(book.up(GpuId::new(0), GpuClass::FIRST, at(0)));
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
        let mut book = GpuBook::new(u32::MAX);
        assert!(
            book.up(GpuId::new(1), GpuClass::FIRST, at(3)) && !book.up(GpuId::new(u32::MAX), GpuClass::FIRST, at(3))
        );
        assert_eq!((book.len(), book.is_up(0), book.is_up(1)), (2, false, true));
        book.planned(&plan(1, 3, 9));
        book.preempted(at(4), 1);
        assert_eq!(earliest(&mut book, at(4)), Some((1, 4)));
        book.down(GpuId::new(1));
        book.done(at(5), GpuId::new(1));
        assert_eq!((earliest(&mut book, at(5)), book.is_up(1)), (None, false));
    }

    #[test]
    fn a_gpu_with_all_its_plans_is_not_offered_until_one_has_gone() {
        let mut book = GpuBook::new(1);
        assert!(book.up(GpuId::new(0), GpuClass::FIRST, at(0)));
        assert_eq!(book.of_class(GpuClass::FIRST), 1);
        book.planned(&plan(0, 0, 10));
        assert_eq!(earliest(&mut book, at(5)), None);
        book.refused(at(6), GpuId::new(0), at(7));
        assert_eq!(earliest(&mut book, at(6)), None, "it has no such plan");
        book.refused(at(6), GpuId::new(0), at(0));
        assert_eq!(earliest(&mut book, at(6)), Some((0, 6)));
        book.down(GpuId::new(0));
        assert_eq!((book.of_class(GpuClass::FIRST), book.classes()), (0, GpuClasses::NONE));
    }
}
