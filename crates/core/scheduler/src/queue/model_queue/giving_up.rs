//! Which requests a queue gives up, and why.

use symphony_types::{DropReason, GpuClass, GpuClasses, Time};

use super::ModelQueue;
use crate::DropRule;
use crate::actions::{ModelAction, ModelActions, Request};
use crate::queue::class_window::ClassWindow;
use crate::queue::queued::Queued;
use crate::why::{DropCause, ShedCause};

impl ModelQueue {
    /// Brings what each class sees of the queue up to now, and gives up the requests that are of use to none of them.
    /// `granted` is a window whose GPU is in sight, and when it is free.
    #[inline(always)]
    pub(super) fn look(&mut self, now: Time, granted: Option<(usize, Time)>, out: &mut ModelActions) {
        if !self.windows.is_single() {
            return self.look_at_all(now, granted, out);
        }
        // All GPUs are alike: the first request of use is the head, or it is given up.
        let gpu_free = granted.map_or(Time::ZERO, |(_, free_at)| free_at);
        let floor = self.slide_window(0, now, gpu_free);
        // A head that could ride with everyone is of use: so it is most of the time, and known at once.
        if floor == 0 || self.windows.first.split > 0 || !self.knows_by_sliding() {
            self.look_at_heads(now, granted, gpu_free, out);
        }
    }

    /// Whether a split says all of the requests at it: not that one of many items fits into a batch.
    const fn knows_by_sliding(&self) -> bool {
        self.multi_item == 0 && matches!(self.config.policy.drop, DropRule::Window(_))
    }

    fn look_at_heads(&mut self, now: Time, granted: Option<(usize, Time)>, gpu_free: Time, out: &mut ModelActions) {
        if self.windows.first.floor == 0 {
            // Not even the youngest can be met here. Without a GPU in sight that is final, on a particular GPU it is
            // not: there the batch runs that was offered, if its head can be met. Returning a GPU that suits it would
            // bring it back at once, for ever.
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

    /// The same with several classes.
    fn look_at_all(&mut self, now: Time, granted: Option<(usize, Time)>, out: &mut ModelActions) {
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

    /// Slides a window, and returns the batch worth protecting.
    #[inline]
    fn slide_window(&mut self, at: usize, now: Time, gpu_free: Time) -> u32 {
        let window = &mut self.windows[at];
        match self.config.policy.drop {
            DropRule::Window(_) => window.slide(&self.queue, &self.config.delays, now, gpu_free),
            DropRule::Prune => window.floor = 1,
        }
        window.floor
    }

    /// Gives up the head: on no class it can ride in a batch worth protecting, or be met alone if it is larger.
    #[cold]
    fn drop_head(&mut self, now: Time, granted: Option<(usize, Time)>, out: &mut ModelActions) {
        let Some(&head) = self.queue.front() else { return };
        let reason = self.reason(now, &head);
        let cause = self.cause(now, granted, &head);
        self.note_loss(now, head);
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
            self.note_loss(now, *queued);
            self.remove_at(index);
            out.list.push(ModelAction::Drop { request, reason, cause });
        }
    }

    /// Gives up the first in line instead of `request`, if one of both is due to be shed, and returns `request` if it
    /// stays. In a lasting overload somebody is given up all the time, and who has waited longest leaves the least time
    /// for company: batches are made of what comes last, all of it.
    pub(super) fn give_way(
        &mut self,
        now: Time,
        request: Request,
        due: Option<ShedCause>,
        out: &mut ModelActions,
    ) -> Option<Request> {
        let Some(shed) = due else { return Some(request) };
        let arrived = Queued::new(request, now, &self.config.delays);
        let first = self.queue.front().copied().filter(|first| first.must_end_by <= arrived.must_end_by);
        if first.is_some() {
            self.remove_at(0);
        }
        self.shed(now, first.unwrap_or(arrived), shed, out);
        first.is_some().then_some(request)
    }

    /// Gives a request up as this model's part of what has to be given up.
    pub(super) fn shed(&mut self, now: Time, queued: Queued, shed: ShedCause, out: &mut ModelActions) {
        let could_serve = self.could_serve(&queued);
        if let Some(shedding) = &mut self.shedding {
            shedding.could_have_been_met_on(could_serve);
        }
        let cause = DropCause { shed: Some(shed), ..self.circumstances(now, &queued) };
        out.list.push(ModelAction::Drop { request: queued.request, reason: DropReason::Shed, cause });
    }

    /// A request is dropped: a loss, unless nobody could have met it when it arrived.
    pub(super) fn note_loss(&mut self, now: Time, queued: Queued) {
        if self.shedding.is_none() {
            return;
        }
        let could_serve = self.could_serve(&queued);
        let (waited, items) = (now.since(queued.arrived), queued.request.items.min(self.batch_max));
        if let Some(shedding) = self.shedding.as_mut().filter(|_| could_serve != GpuClasses::NONE) {
            shedding.dropped(items, waited, could_serve);
        }
    }

    /// When a request of so many items would end alone on an idle GPU of the class that is fastest at it.
    fn alone_end(&self, now: Time, items: u32) -> Time {
        let ends = self.windows.iter().map(|window| window.finish(&self.config.delays, now, Time::ZERO, items));
        ends.min().unwrap_or(Time::NEVER)
    }

    /// The classes of GPUs that would have met the request alone, idle when it arrived.
    fn could_serve(&self, queued: &Queued) -> GpuClasses {
        let end =
            |window: &ClassWindow| window.finish(&self.config.delays, queued.arrived, Time::ZERO, queued.request.items);
        self.windows.iter().filter(|window| queued.must_end_by >= end(window)).map(|window| window.class).collect()
    }

    fn reason(&self, now: Time, queued: &Queued) -> DropReason {
        // What could not be met when it came did not expire for waiting. When what was returned came is not known here.
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

    /// What a request is given up for: it would have to ride in a batch worth protecting, and even the class where that
    /// ends first ends too late.
    fn cause(&self, now: Time, granted: Option<(usize, Time)>, queued: &Queued) -> DropCause {
        let on = |(at, window): (usize, &ClassWindow)| {
            let batch = window.floor.max(1).max(queued.request.items);
            let batch_end = window.finish(&self.config.delays, now, free_at(granted, at), batch);
            (batch_end, batch, window.class, window.protected())
        };
        let best = self.windows.iter().enumerate().map(on).min();
        let (batch_end, batch, class, target) = best.unwrap_or((Time::NEVER, 0, GpuClass::FIRST, 0));
        DropCause { class, batch, batch_end, target, ..self.circumstances(now, queued) }
    }

    /// The same where no batch was looked at.
    pub(super) fn circumstances(&self, now: Time, queued: &Queued) -> DropCause {
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

/// When a window's GPU is free: long since, unless one is in sight.
#[inline]
fn free_at(granted: Option<(usize, Time)>, at: usize) -> Time {
    match granted {
        Some((window, free_at)) if window == at => free_at,
        _ => Time::ZERO,
    }
}
