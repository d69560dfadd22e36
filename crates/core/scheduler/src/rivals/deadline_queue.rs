//! Requests of one model, ordered by deadline.

use std::collections::VecDeque;

use symphony_types::Time;

use crate::actions::Request;

/// A waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) request: Request,
    /// Deadline − reply delay.
    pub(super) must_end_by: Time,
}

/// Requests by `must_end_by`; ties in order of arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct DeadlineQueue {
    queue: VecDeque<Waiting>,
    items: u64,
}

impl DeadlineQueue {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Total items.
    pub(super) fn items(&self) -> u64 {
        self.items
    }

    pub(super) fn head(&self) -> Option<&Waiting> {
        self.queue.front()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Waiting> {
        self.queue.get(index)
    }

    pub(super) fn insert(&mut self, waiting: Waiting) {
        self.items += u64::from(waiting.request.items);
        match self.queue.back() {
            Some(last) if last.must_end_by > waiting.must_end_by => {
                let index = self.queue.partition_point(|other| other.must_end_by <= waiting.must_end_by);
                self.queue.insert(index, waiting);
            }
            _ => self.queue.push_back(waiting),
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<Waiting> {
        let waiting = self.queue.pop_front()?;
        self.items -= u64::from(waiting.request.items);
        Some(waiting)
    }

    /// Removes `requests` requests from `first` on; all of them are taken.
    pub(super) fn drain(&mut self, first: usize, requests: usize) -> impl Iterator<Item = Waiting> {
        let (len, items) = (self.queue.len(), &mut self.items);
        let range = first.min(len)..first.saturating_add(requests).min(len);
        self.queue.drain(range).inspect(move |waiting| *items -= u64::from(waiting.request.items))
    }

    /// The first request that may end at `at`.
    pub(super) fn first_until(&self, at: Time) -> usize {
        self.queue.partition_point(|waiting| waiting.must_end_by < at)
    }

    /// Removes a request that waits until `must_end_by`; returns whether it was waiting.
    pub(super) fn remove(&mut self, request: &Request, must_end_by: Time) -> bool {
        let first = self.queue.partition_point(|other| other.must_end_by < must_end_by);
        let alike = self.queue.iter().skip(first).take_while(|other| other.must_end_by == must_end_by);
        let found = alike.zip(first..).find_map(|(other, at)| (other.request.id == request.id).then_some(at));
        let Some(waiting) = found.and_then(|at| self.queue.remove(at)) else { return false };
        self.items -= u64::from(waiting.request.items);
        true
    }

    /// Removes all requests; returns how many there were.
    pub(super) fn clear(&mut self) -> usize {
        let requests = self.queue.len();
        self.queue.clear();
        self.items = 0;
        requests
    }

    /// The reply delay has changed, and with it when each request must end; the order is the same.
    pub(super) fn rekey(&mut self, must_end_by: impl Fn(&Request) -> Time) {
        self.queue.iter_mut().for_each(|waiting| waiting.must_end_by = must_end_by(&waiting.request));
    }

    /// The number of requests from `first` on that form a batch of at most `items_max` items, and their items.
    pub(super) fn take(&self, first: usize, items_max: u32) -> (usize, u32) {
        // The usual case, single-item requests behind `first`, needs no loop.
        if self.items == self.queue.len() as u64 {
            let requests = (self.queue.len() - first.min(self.queue.len())).min(items_max as usize);
            return (requests, requests as u32);
        }
        let (mut requests, mut items) = (0, 0_u32);
        for waiting in self.queue.iter().skip(first) {
            let larger = items.saturating_add(waiting.request.items);
            if larger > items_max {
                break;
            }
            (requests, items) = (requests + 1, larger);
        }
        (requests, items)
    }

    /// Items of a batch of at most `items_max` items if these requests, ordered by deadline, were queued as well.
    pub(super) fn take_merged(&self, others: &[Waiting], items_max: u32) -> u32 {
        let (mut queued, mut others) = (self.queue.iter().peekable(), others.iter().peekable());
        let mut items = 0_u32;
        loop {
            let next = match (queued.peek(), others.peek()) {
                (Some(first), Some(other)) if other.must_end_by < first.must_end_by => others.next(),
                (Some(_), _) => queued.next(),
                (None, _) => others.next(),
            };
            let Some(next) = next else { return items };
            let larger = items.saturating_add(next.request.items);
            if larger > items_max {
                return items;
            }
            items = larger;
        }
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::RequestId;

    use super::*;

    fn queue(of: &[(u64, u32)]) -> DeadlineQueue {
        let mut queue = DeadlineQueue::default();
        for (sequence, &(must_end_by, items)) in (0..).zip(of) {
            let must_end_by = Time::from_nanos(must_end_by);
            let id = RequestId { sequence, ..RequestId::default() };
            queue.insert(Waiting {
                request: Request {
                    id,
                    deadline: must_end_by,
                    items,
                    weight: symphony_types::RequestValue::ONE,
                    variant: 0,
                },
                must_end_by,
            });
        }
        queue
    }

    #[test]
    fn the_earliest_deadline_comes_first_and_equal_ones_in_order_of_arrival() {
        let mut queue = queue(&[(5, 1), (9, 1), (5, 2), (1, 1)]);
        assert_eq!((queue.len(), queue.items()), (4, 5));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop_front()).map(|w| w.request.id.sequence).collect();
        assert_eq!(order, [3, 0, 2, 1]);
        assert_eq!(queue.items(), 0);
    }

    #[test]
    fn a_request_is_removed_by_its_deadline_also_after_it_has_moved() {
        let mut queue = queue(&[(5, 1), (5, 2), (9, 3)]);
        let second = queue.queue[1].request;
        assert!(!queue.remove(&second, Time::from_nanos(4)), "nothing waits until then");
        queue.rekey(|request| Time::from_nanos(request.deadline.as_nanos() - 1));
        assert!(queue.remove(&second, Time::from_nanos(4)) && !queue.remove(&second, Time::from_nanos(4)));
        assert_eq!((queue.len(), queue.items(), queue.clear(), queue.items()), (2, 4, 2, 0));
    }

    #[test]
    fn a_batch_counts_items_and_never_splits_a_request() {
        let single = queue(&[(1, 1), (2, 1), (3, 1)]);
        assert_eq!((single.take(0, 2), single.take(1, 9), single.take(7, 9)), ((2, 2), (2, 2), (0, 0)));
        let mixed = queue(&[(1, 1), (2, 3), (3, 1)]);
        assert_eq!((mixed.take(0, 3), mixed.take(0, 4), mixed.take(1, 2)), ((1, 1), (2, 4), (0, 0)));
        let others: Vec<_> = [single.queue[1], single.queue[2]].to_vec();
        assert_eq!([1, 4, 5, 7, 9].map(|most| mixed.take_merged(&others, most)), [1, 4, 5, 7, 7]);
    }
}
