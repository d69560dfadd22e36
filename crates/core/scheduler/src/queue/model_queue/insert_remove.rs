//! Insertion into the queue and removal from it.

use symphony_types::{DropReason, RequestId, Time};

use super::ModelQueue;
use crate::actions::{ModelAction, ModelActions, Request};
use crate::queue::queued::Queued;

impl ModelQueue {
    /// Queues a request, or drops it if the queue is full. Inlined, so that it is constructed in place.
    #[inline(always)]
    pub(super) fn insert_or_drop(&mut self, now: Time, queued: Queued, out: &mut ModelActions) -> bool {
        let fits = self.queue.len() < self.config.requests_max;
        if fits {
            self.insert(queued);
        } else {
            let cause = self.drop_cause(now, &queued);
            self.count_loss(now, queued);
            out.list.push(ModelAction::Drop { request: queued.request, reason: DropReason::QueueFull, cause });
        }
        fits
    }

    #[inline(always)]
    fn insert(&mut self, mut queued: Queued) {
        queued.request.items = queued.request.items.max(1);
        let index = match self.queue.back() {
            Some(last) if last.must_end_by > queued.must_end_by => {
                self.queue.partition_point(|q| q.must_end_by <= queued.must_end_by)
            }
            _ => self.queue.len(),
        };
        if index == self.queue.len() {
            self.queue.push_back(queued);
        } else {
            self.queue.insert(index, queued);
        }
        self.windows.inserted(index, queued.request.items);
        self.multi_item += usize::from(queued.request.items > 1);
    }

    /// Moves the requests of a batch to `planned`.
    pub(super) fn take_out(&mut self, from: usize, requests: usize, planned: &mut Vec<Request>) {
        if from == 0 && self.multi_item == 0 {
            self.windows.removed_first(requests);
            for queued in self.queue.drain(..requests) {
                // One by one, so that memory grows by doubling and suffices when a larger batch comes.
                planned.push(queued.request);
            }
            return;
        }
        // Each removal leaves a gap as far as the windows' indices are concerned; the queue itself is compacted once.
        for queued in self.queue.drain(from..from + requests) {
            self.windows.removed(from, queued.request.items);
            self.multi_item -= usize::from(queued.request.items > 1);
            planned.push(queued.request);
        }
    }

    #[inline]
    pub(super) fn remove_at(&mut self, index: usize) -> Request {
        let queued = if index == 0 { self.queue.pop_front() } else { self.queue.remove(index) };
        let request = queued.expect("the caller saw it").request;
        self.windows.removed(index, request.items);
        self.multi_item -= usize::from(request.items > 1);
        request
    }

    pub(super) fn remove_where(&mut self, leaves: impl Fn(RequestId) -> bool) {
        let Self { queue, windows, multi_item, .. } = self;
        let mut index = 0;
        queue.retain(|Queued { request, .. }| {
            if !leaves(request.id) {
                index += 1;
                return true;
            }
            // The indices already exclude the requests removed before it.
            windows.removed(index, request.items);
            *multi_item -= usize::from(request.items > 1);
            false
        });
    }

    /// Removes all cancelled requests in one pass.
    pub(super) fn remove_cancelled(&mut self) {
        if self.cancelled.is_empty() {
            return;
        }
        let mut cancelled = std::mem::take(&mut self.cancelled);
        cancelled.sort_unstable();
        let (first, last) = (cancelled[0], cancelled[cancelled.len() - 1]);
        self.remove_where(|id| first <= id && id <= last && cancelled.binary_search(&id).is_ok());
        cancelled.clear();
        self.cancelled = cancelled;
    }
}
