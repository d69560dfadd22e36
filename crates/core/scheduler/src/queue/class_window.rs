//! A model's queue from the viewpoint of one GPU class.

use std::collections::VecDeque;

use symphony_types::{GpuClass, LatencyProfile, Nanos, Time};

use crate::Delays;
use crate::actions::Candidate;
use crate::meters::lateness_meter::Overrun;
use crate::queue::aimd::Aimd;
use crate::queue::queued::Queued;

/// The position of a GPU class in the queue. Code that inserts or removes requests must adjust both indices, `split`
/// and `head`.
#[derive(Clone, Debug)]
pub(crate) struct ClassWindow {
    pub(crate) class: GpuClass,
    pub(crate) profile: LatencyProfile,
    /// β in seconds: the part of a batch's latency that does not depend on its size.
    pub(crate) beta_s: f64,
    /// Mean items per request: the step by which batches grow.
    pub(crate) joining: u32,
    /// `queue[..split]` is at risk on this class: these requests join a batch if they fit, but no batch is shrunk for
    /// them.
    pub(crate) split: usize,
    /// Items in `queue[split..]`, the window.
    pub(crate) items: u64,
    /// The first request that fits into a batch worth protecting: the class's candidate starts there, and the requests
    /// before it need a faster class. Always zero with a single class, where such requests are given up.
    pub(crate) from: usize,
    /// The batch worth protecting in this step: min(target, window).
    pub(crate) floor: u32,
    /// The target batch, or the share of it that the drop rule protects.
    pub(crate) target: u32,
    /// The target batch.
    pub(crate) whole_target: u32,
    /// A longer window is not a fluctuation that passes.
    pub(crate) backlog: u64,
    /// The state of [`BatchLimit::Aimd`](crate::BatchLimit::Aimd).
    pub(crate) aimd: Aimd,
    /// Whether the model keeps less than one GPU of this class busy with target batches.
    pub(crate) below_one_gpu: bool,
    /// The overrun to plan for, relative to ℓ(b).
    pub(crate) overrun: Overrun,
    /// Upper limit of the planned overrun.
    pub(crate) overrun_max: Nanos,
    /// The time until which the started batches keep the GPUs of the class busy, if divided evenly among them.
    pub(crate) paced_until: Time,
    /// The last offer.
    pub(crate) offered: Option<(u64, Option<Candidate>)>,
}

impl ClassWindow {
    /// For an empty queue.
    pub(crate) fn new(class: GpuClass, profile: LatencyProfile) -> Self {
        Self {
            class,
            beta_s: beta_s(&profile),
            joining: 1,
            profile,
            split: 0,
            items: 0,
            from: 0,
            floor: 0,
            target: 1,
            whole_target: 1,
            backlog: u64::MAX,
            aimd: Aimd::new(),
            below_one_gpu: true,
            overrun: Overrun::NONE,
            overrun_max: Nanos::ZERO,
            paced_until: Time::ZERO,
            offered: None,
        }
    }

    /// The planned latency of a batch: ℓ(b) plus the recent overrun.
    #[inline]
    pub(crate) fn takes(&self, batch: u32) -> Nanos {
        let latency = self.profile.latency(batch);
        latency + self.overrun.of(latency).min(self.overrun_max)
    }

    /// A batch starts on one of the class's GPUs, `gpus` in number. The pace ends with the predicted end of the batch
    /// at the latest; otherwise it would run ahead where GPUs are faster than predicted.
    pub(crate) fn pace(&mut self, start: Time, takes: Nanos, gpus: u32) {
        let share = takes.get().checked_div(gpus.into()).map_or(Nanos::ZERO, Nanos::new);
        self.paced_until = (self.paced_until.max(start) + share).min(start + takes);
    }

    /// The end of a batch of `batch` items decided now.
    #[inline]
    pub(crate) fn finish(&self, delays: &Delays, now: Time, gpu_free: Time, batch: u32) -> Time {
        (now + delays.lead(batch)).max(gpu_free) + self.takes(batch)
    }

    /// Whether the request fits into a batch worth protecting, or can at least be met alone if it is larger than that.
    #[inline]
    pub(crate) fn fits(&self, delays: &Delays, queued: &Queued, now: Time, gpu_free: Time) -> bool {
        let batch = self.floor.max(1).max(queued.request.items);
        queued.must_end_by >= self.finish(delays, now, gpu_free, batch)
    }

    /// Advances the split to the first request that could share a batch with all requests behind it. The batch worth
    /// protecting is then min(target, window), or the whole target if there is a backlog.
    #[inline]
    pub(crate) fn slide(&mut self, queue: &VecDeque<Queued>, delays: &Delays, now: Time, gpu_free: Time) {
        let batch_max = u64::from(self.profile.batch_max());
        while let Some(first) = queue.get(self.split) {
            let together = self.items.min(batch_max) as u32;
            if first.must_end_by >= self.finish(delays, now, gpu_free, together) {
                break;
            }
            self.items -= u64::from(first.request.items);
            self.split += 1;
        }
        self.floor = self.items.min(u64::from(self.protected())) as u32;
    }

    /// The batch to protect, if enough items are queued for it.
    #[inline]
    pub(crate) fn protected(&self) -> u32 {
        if self.items > self.backlog { self.whole_target } else { self.target }
    }

    /// Finds the first request that fits. Single-item requests fit from some deadline on, so the search starts near the
    /// last result. A request with more items than the protected batch needs more time: it may not fit although those
    /// before it do, but the others still divide at one deadline.
    pub(crate) fn find_first(
        &mut self,
        queue: &VecDeque<Queued>,
        delays: &Delays,
        now: Time,
        gpu_free: Time,
        multi_item: bool,
    ) {
        let fits = |index: usize| queue.get(index).is_none_or(|queued| self.fits(delays, queued, now, gpu_free));
        let mut from = self.from;
        if multi_item {
            let batch_end = self.finish(delays, now, gpu_free, self.floor.max(1));
            from = queue.partition_point(|queued| queued.must_end_by < batch_end);
        }
        while !fits(from) {
            from += 1;
        }
        while !multi_item && from > 0 && fits(from - 1) {
            from -= 1;
        }
        self.from = from;
    }

    /// From this moment on no further request could join a batch of `batch` items.
    #[inline]
    pub(crate) fn frontrun(&self, delays: &Delays, must_end_by: Time, batch: u32) -> Time {
        let joined = batch.saturating_add(self.joining);
        let more_input = delays.data.of(joined) - delays.data.of(batch);
        must_end_by - self.takes(joined) - more_input
    }

    /// Replaces the profile.
    pub(crate) fn set_profile(&mut self, profile: LatencyProfile) {
        self.beta_s = beta_s(&profile);
        self.profile = profile;
    }

    /// A request was inserted at `index`.
    #[inline]
    pub(crate) fn inserted(&mut self, index: usize, items: u32) {
        if index < self.split {
            self.split += 1;
        } else {
            self.items += u64::from(items);
        }
        if index < self.from {
            self.from += 1;
        }
    }

    /// The first requests, of one item each, were removed.
    pub(crate) fn removed_first(&mut self, requests: usize) {
        let at_risk = requests.min(self.split);
        self.split -= at_risk;
        self.items -= (requests - at_risk) as u64;
        self.from = self.from.saturating_sub(requests);
    }

    /// The request at `index` was removed.
    #[inline]
    pub(crate) fn removed(&mut self, index: usize, items: u32) {
        if index < self.split {
            self.split -= 1;
        } else {
            self.items -= u64::from(items);
        }
        if index < self.from {
            self.from -= 1;
        }
    }
}

fn beta_s(profile: &LatencyProfile) -> f64 {
    let (smallest, largest) = (profile.latency(1), profile.batch_max());
    let alpha = match largest {
        1 => 0.0,
        _ => (profile.latency(largest) - smallest).as_secs_f64() / f64::from(largest - 1),
    };
    (smallest.as_secs_f64() - alpha).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_leave_together_as_they_do_one_after_another() {
        let profile = LatencyProfile::from_line(1.0, 5.0, 64).unwrap();
        for (split, from) in [(0, 0), (3, 2), (7, 0), (5, 9)] {
            let mut together = ClassWindow::new(GpuClass::FIRST, profile.clone());
            (together.split, together.items, together.from) = (split, 20, from);
            let mut single = together.clone();
            together.removed_first(5);
            (0..5).for_each(|_| single.removed(0, 1));
            let places = |window: &ClassWindow| (window.split, window.items, window.from);
            assert_eq!(places(&together), places(&single));
        }
    }

    #[test]
    fn a_backlog_asks_for_the_whole_target_and_a_fluctuation_does_not() {
        let profile = LatencyProfile::from_line(1.0, 5.0, 64).unwrap();
        let mut window = ClassWindow::new(GpuClass::FIRST, profile);
        (window.target, window.whole_target, window.backlog) = (9, 12, 30);
        for (items, floor) in [(5, 5), (10, 9), (30, 9), (31, 12)] {
            window.items = items;
            window.slide(&VecDeque::new(), &Delays::default(), Time::ZERO, Time::ZERO);
            assert_eq!(window.floor, floor, "{items} items");
        }
    }
}
