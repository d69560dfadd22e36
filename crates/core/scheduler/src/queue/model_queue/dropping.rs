//! Decides which requests a queue gives up, and why.

use symphony_types::{DropReason, GpuClass, GpuClasses, Time};

use super::ModelQueue;
use crate::DropRule;
use crate::actions::{ModelAction, ModelActions, Request};
use crate::pool::shedding::weight_class;
use crate::queue::class_window::ClassWindow;
use crate::queue::queued::Queued;
use crate::why::{DropCause, ShedCause};

/// How far from the front one of the same weight is looked for: further behind, it has not waited much longer than the
/// request that comes.
const ALIKE_WITHIN: usize = 64;

impl ModelQueue {
    /// Updates the window of each class to the present, and gives up the requests that are useful to none. `granted`:
    /// the window whose GPU was granted, and when that GPU is free.
    #[inline(always)]
    pub(super) fn drop_unservable(&mut self, now: Time, granted: Option<(usize, Time)>, out: &mut ModelActions) {
        if !self.windows.is_single() {
            return self.drop_unservable_by_class(now, granted, out);
        }
        // A single class: the first useful request becomes the head, and those before it are given up.
        let gpu_free = granted.map_or(Time::ZERO, |(_, free_at)| free_at);
        let floor = self.slide_window(0, now, gpu_free);
        // The common case, known without a search: a head that shares a batch with all requests is useful.
        if floor == 0 || self.windows.first.split > 0 || !self.knows_by_sliding() {
            self.drop_unservable_heads(now, granted, gpu_free, out);
        }
    }

    /// Whether the split alone tells that its request fits; not so for a request of several items.
    const fn knows_by_sliding(&self) -> bool {
        self.multi_item == 0 && matches!(self.config.policy.drop, DropRule::Window(_))
    }

    fn drop_unservable_heads(
        &mut self,
        now: Time,
        granted: Option<(usize, Time)>,
        gpu_free: Time,
        out: &mut ModelActions,
    ) {
        if self.windows.first.floor == 0 {
            // Not even the youngest request can be met here. Without a grant that is final. For a granted GPU it is
            // not: the offered batch runs there if its head can be met. Otherwise the GPU would be returned and granted
            // again at once, for ever.
            if gpu_free > now {
                return;
            }
            self.drop_unreachable(now, out);
        }
        while let Some(head) = self.queue.front()
            && !self.windows.first.fits(&self.config.delays, head, now, gpu_free)
        {
            self.drop_head(now, granted, out);
        }
    }

    /// As [`drop_unservable`](Self::drop_unservable), with several classes.
    fn drop_unservable_by_class(&mut self, now: Time, granted: Option<(usize, Time)>, out: &mut ModelActions) {
        let (mut hopeless, mut abstains) = (true, None);
        for at in 0..self.windows.len() {
            let gpu_free = free_at(granted, at);
            let floor = self.slide_window(at, now, gpu_free);
            hopeless &= floor == 0;
            if floor == 0 && gpu_free > now {
                abstains = Some(at);
            }
        }
        if hopeless && abstains.is_none() {
            self.drop_unreachable(now, out);
        }
        let mut useless = usize::MAX;
        for (at, window) in self.windows.iter_mut().enumerate() {
            if abstains != Some(at) {
                window.find_first(&self.queue, &self.config.delays, now, free_at(granted, at), self.multi_item > 0);
                useless = useless.min(window.from);
            }
        }
        if abstains.is_none() {
            for _ in 0..useless.min(self.queue.len()) {
                self.drop_head(now, granted, out);
            }
        }
    }

    /// Advances a window and returns the batch worth protecting.
    #[inline]
    fn slide_window(&mut self, at: usize, now: Time, gpu_free: Time) -> u32 {
        let window = &mut self.windows[at];
        match self.config.policy.drop {
            DropRule::Window(_) => window.slide(&self.queue, &self.config.delays, now, gpu_free),
            DropRule::Prune => window.floor = 1,
        }
        window.floor
    }

    /// Gives up the head: on no class does it fit into a batch worth protecting, or can be met alone if it is larger.
    #[cold]
    fn drop_head(&mut self, now: Time, granted: Option<(usize, Time)>, out: &mut ModelActions) {
        let Some(&head) = self.queue.front() else { return };
        let reason = self.reason(now, &head);
        let cause = self.cause(now, granted, &head);
        self.count_loss(now, head);
        let request = self.remove_at(0);
        out.list.push(ModelAction::Drop { request, reason, cause });
    }

    /// Gives up every request that cannot be met even alone, wherever it stands.
    #[cold]
    fn drop_unreachable(&mut self, now: Time, out: &mut ModelActions) {
        let mut index = 0;
        while let Some(queued) = self.queue.get(index) {
            if queued.must_end_by >= self.alone_end(now, queued.request.items) {
                index += 1;
                continue;
            }
            let (request, reason) = (queued.request, self.reason(now, queued));
            let cause = self.cause(now, None, queued);
            self.count_loss(now, *queued);
            self.remove_at(index);
            out.list.push(ModelAction::Drop { request, reason, cause });
        }
    }

    /// If `request` or the first of its weight in the queue is due to be shed, gives up the first one instead of
    /// `request`, and returns `request` if it stays. In a lasting overload requests are shed all the time. The request
    /// that has waited longest leaves the least time for a batch, so batches are formed of the newest requests.
    pub(super) fn shed_oldest(
        &mut self,
        now: Time,
        request: Request,
        due: Option<ShedCause>,
        out: &mut ModelActions,
    ) -> Option<Request> {
        let Some(shed) = due else { return Some(request) };
        let arrived = Queued::new(request, now, &self.config.delays);
        let class = weight_class(request.weight);
        let front = self.queue.iter().take(ALIKE_WITHIN);
        let index = front.enumerate().find(|(_, queued)| weight_class(queued.request.weight) == class);
        let first = index.map(|(index, &first)| (index, first)).filter(|(_, q)| q.must_end_by <= arrived.must_end_by);
        let first = first.map(|(index, first)| {
            self.remove_at(index);
            first
        });
        self.shed(now, first.unwrap_or(arrived), shed, out);
        first.is_some().then_some(request)
    }

    /// Sheds a request as part of this model's share.
    pub(super) fn shed(&mut self, now: Time, queued: Queued, shed: ShedCause, out: &mut ModelActions) {
        let could_serve = self.could_serve(&queued);
        if let Some(shedding) = &mut self.shedding {
            shedding.could_have_been_met_on(could_serve);
        }
        let cause = DropCause { shed: Some(shed), ..self.drop_cause(now, &queued) };
        out.list.push(ModelAction::Drop { request: queued.request, reason: DropReason::Shed, cause });
    }

    /// Counts a dropped request: a loss, unless it was unreachable already when it arrived.
    pub(super) fn count_loss(&mut self, now: Time, queued: Queued) {
        if self.shedding.is_none() {
            return;
        }
        let could_serve = self.could_serve(&queued);
        let (waited, items) = (now.since(queued.arrived), queued.request.items.min(self.batch_max));
        if let Some(shedding) = self.shedding.as_mut().filter(|_| could_serve != GpuClasses::NONE) {
            shedding.dropped(items, queued.request.weight, waited, could_serve);
        }
    }

    /// When a request of `items` items would end alone on an idle GPU of the fastest class.
    fn alone_end(&self, now: Time, items: u32) -> Time {
        let ends = self.windows.iter().map(|window| window.finish(&self.config.delays, now, Time::ZERO, items));
        ends.min().unwrap_or(Time::NEVER)
    }

    /// The GPU classes that, idle at its arrival, would have met the request alone.
    fn could_serve(&self, queued: &Queued) -> GpuClasses {
        let end =
            |window: &ClassWindow| window.finish(&self.config.delays, queued.arrived, Time::ZERO, queued.request.items);
        self.windows.iter().filter(|window| queued.must_end_by >= end(window)).map(|window| window.class).collect()
    }

    fn reason(&self, now: Time, queued: &Queued) -> DropReason {
        // A request that was unreachable on arrival has not expired by waiting. For a returned request the arrival is
        // not known here.
        if !queued.returned && self.could_serve(queued) == GpuClasses::NONE {
            DropReason::SloUnreachable
        } else if queued.request.deadline <= now {
            DropReason::QueueExpired
        } else if queued.must_end_by < self.alone_end(now, queued.request.items) {
            DropReason::SloUnreachable
        } else {
            DropReason::ProtectBatch
        }
    }

    /// The drop cause: the request would have to join a batch worth protecting, which ends too late even on the class
    /// where it ends first.
    fn cause(&self, now: Time, granted: Option<(usize, Time)>, queued: &Queued) -> DropCause {
        let on = |(at, window): (usize, &ClassWindow)| {
            let batch = window.floor.max(1).max(queued.request.items);
            let batch_end = window.finish(&self.config.delays, now, free_at(granted, at), batch);
            (batch_end, batch, window.class, window.protected())
        };
        let best = self.windows.iter().enumerate().map(on).min();
        let (batch_end, batch, class, target) = best.unwrap_or((Time::NEVER, 0, GpuClass::FIRST, 0));
        DropCause { class, batch, batch_end, target, ..self.drop_cause(now, queued) }
    }

    /// The drop cause if no batch was considered.
    pub(super) fn drop_cause(&self, now: Time, queued: &Queued) -> DropCause {
        DropCause {
            arrived: queued.arrived,
            must_end_by: queued.must_end_by,
            class: self.windows.first.class,
            batch: 0,
            target: self.windows.first.protected(),
            batch_end: Time::NEVER,
            alone_end: self.alone_end(now, queued.request.items),
            waiting: self.queue.len() as u32,
            shed: None,
        }
    }
}

/// When the window's GPU is free: in the past unless one was granted.
#[inline]
fn free_at(granted: Option<(usize, Time)>, at: usize) -> Time {
    match granted {
        Some((window, free_at)) if window == at => free_at,
        _ => Time::ZERO,
    }
}
