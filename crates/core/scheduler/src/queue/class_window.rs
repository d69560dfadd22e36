//! A model's queue as GPUs of one class see it.

use std::collections::VecDeque;

use symphony_types::{GpuClass, LatencyProfile, Nanos, Time};

use crate::Delays;
use crate::actions::Candidate;
use crate::meters::lateness_meter::Overrun;
use crate::queue::aimd::Aimd;
use crate::queue::queued::Queued;

/// Where in the queue a class stands. Both places only say how far it has looked: who takes requests out or puts some
/// in moves them along.
#[derive(Clone, Debug)]
pub(crate) struct ClassWindow {
    pub(crate) class: GpuClass,
    pub(crate) profile: LatencyProfile,
    /// β in seconds: what a batch takes besides its items.
    pub(crate) beta_s: f64,
    /// Items that a request has in the mean: that many have to fit in for one more to join a batch.
    pub(crate) joining: u32,
    /// `queue[..split]` is at risk on this class: its requests ride along if they can, but no batch is shrunk for them.
    pub(crate) split: usize,
    /// Items in `queue[split..]`, the window.
    pub(crate) items: u64,
    /// The first request that can still ride in a batch worth protecting; the class's candidate begins there, and what
    /// is before it needs a faster class. Always zero where there is only one class: then it is given up.
    pub(crate) from: usize,
    /// The batch worth protecting, as of the step at hand: the target, or the window if that is smaller.
    pub(crate) floor: u32,
    /// The batch size that perfectly staggered GPUs of this class would reach, or the part of it that the drop rule
    /// protects.
    pub(crate) target: u32,
    /// All of it.
    pub(crate) whole_target: u32,
    /// A window of more items than this is no fluctuation that passes by itself.
    pub(crate) backlog: u64,
    /// Where [`BatchLimit::Aimd`](crate::BatchLimit::Aimd) stands.
    pub(crate) aimd: Aimd,
    /// Whether the model keeps less than one GPU of this class busy in batches of the target size.
    pub(crate) below_one_gpu: bool,
    /// How much longer than ℓ(b) a batch is planned to take.
    pub(crate) overrun: Overrun,
    /// No batch is planned to take longer than ℓ(b) by more than this.
    pub(crate) overrun_max: Nanos,
    /// Until when the batches that started would keep all GPUs of the class busy, shared among them.
    pub(crate) paced_until: Time,
    /// What was offered last.
    pub(crate) offered: Option<(u64, Option<Candidate>)>,
}

impl ClassWindow {
    /// Over an empty queue.
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

    /// How long a batch is planned to take: ℓ(b), and as much more as executions lately took.
    #[inline]
    pub(crate) fn takes(&self, batch: u32) -> Nanos {
        let latency = self.profile.latency(batch);
        latency + self.overrun.of(latency).min(self.overrun_max)
    }

    /// A batch starts on one of so many GPUs of the class. The pace ends with the batch at the latest, by its
    /// prediction: else it would run ahead where GPUs are faster than predicted.
    pub(crate) fn pace(&mut self, start: Time, takes: Nanos, gpus: u32) {
        let share = takes.get().checked_div(gpus.into()).map_or(Nanos::ZERO, Nanos::new);
        self.paced_until = (self.paced_until.max(start) + share).min(start + takes);
    }

    /// The end of a batch of `batch` items decided now.
    #[inline]
    pub(crate) fn finish(&self, delays: &Delays, now: Time, gpu_free: Time, batch: u32) -> Time {
        (now + delays.lead(batch)).max(gpu_free) + self.takes(batch)
    }

    /// Whether the request can ride in a batch that is worth protecting, or be met alone if it is larger.
    #[inline]
    pub(crate) fn fits(&self, delays: &Delays, queued: &Queued, now: Time, gpu_free: Time) -> bool {
        let batch = self.floor.max(1).max(queued.request.items);
        queued.must_end_by >= self.finish(delays, now, gpu_free, batch)
    }

    /// Moves the split until the first request of the window could ride with everyone behind it. Then the batch worth
    /// protecting is the target, or the whole window if that is smaller; with a backlog, all of the target.
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

    /// The batch to protect, if there is enough for it.
    #[inline]
    pub(crate) fn protected(&self) -> u32 {
        if self.items > self.backlog { self.whole_target } else { self.target }
    }

    /// Finds the first request that fits. Among requests of one item those do whose deadline leaves time for the batch
    /// worth protecting, and the first is near the one of the last time. A request of more items than that batch needs
    /// more time and may not fit although those before it do; the others still divide at one deadline.
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

    /// From when on no request could join a batch of `batch` items any more.
    #[inline]
    pub(crate) fn frontrun(&self, delays: &Delays, must_end_by: Time, batch: u32) -> Time {
        let joined = batch.saturating_add(self.joining);
        let more_input = delays.data.of(joined) - delays.data.of(batch);
        must_end_by - self.takes(joined) - more_input
    }

    /// Corrects the profile.
    pub(crate) fn set_profile(&mut self, profile: LatencyProfile) {
        self.beta_s = beta_s(&profile);
        self.profile = profile;
    }

    /// A request was put in at `index`.
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

    /// The first requests, of one item each, were taken out.
    pub(crate) fn removed_first(&mut self, requests: usize) {
        let at_risk = requests.min(self.split);
        self.split -= at_risk;
        self.items -= (requests - at_risk) as u64;
        self.from = self.from.saturating_sub(requests);
    }

    /// The request at `index` was taken out.
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
