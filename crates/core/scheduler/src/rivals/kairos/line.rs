//! Queries of all models in one line.

use std::collections::VecDeque;

use symphony_types::{DropReason, Time};

use crate::QUEUE_REQUESTS_MAX;
use crate::actions::Request;
use crate::cluster_policy::ClusterActions;
use crate::rivals::cluster::Cluster;
use crate::rivals::deadline_queue::Waiting;

/// A request of a model; it is a batch of its own, never merged with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) model: u32,
    pub(super) waiting: Waiting,
    /// Its place in the line; the earliest is first.
    place: Time,
}

/// What a line is ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineOrder {
    /// By when queries must have ended.
    Deadline,
    /// First come, first served; queries that came back go first.
    Arrival,
}

/// Queries in order; equal ones in order of arrival.
#[derive(Clone, Debug)]
pub(super) struct Line {
    order: LineOrder,
    queries: VecDeque<Query>,
}

impl Line {
    pub(super) fn new(order: LineOrder) -> Self {
        Self { order, queries: VecDeque::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.queries.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Query> {
        self.queries.get(index)
    }

    pub(super) fn first(&self, queries: usize) -> impl Iterator<Item = &Query> {
        self.queries.iter().take(queries)
    }

    /// Removes a query.
    pub(super) fn take(&mut self, index: usize) -> Option<Query> {
        self.queries.remove(index)
    }

    /// Queues a request that came at `came`, which is the origin of time if it came back; or drops it if the model is
    /// not known or the line is full.
    pub(super) fn admit(
        &mut self,
        cluster: &Cluster,
        (model, request): (u32, Request),
        came: Time,
        out: &mut ClusterActions,
    ) {
        let slot = model as usize;
        if cluster.get(slot).is_none() {
            out.give_up(model, request, DropReason::SloUnreachable);
            return;
        }
        if self.queries.len() >= QUEUE_REQUESTS_MAX {
            out.give_up(model, request, DropReason::QueueFull);
            return;
        }
        let waiting = cluster.waiting(slot, request);
        let place = match self.order {
            LineOrder::Deadline => waiting.must_end_by,
            LineOrder::Arrival => came,
        };
        self.insert(Query { model, waiting, place });
    }

    fn insert(&mut self, query: Query) {
        match self.queries.back() {
            Some(last) if last.place > query.place => {
                let index = self.queries.partition_point(|other| other.place <= query.place);
                self.queries.insert(index, query);
            }
            _ => self.queries.push_back(query),
        }
    }

    /// Removes a request that was withdrawn; returns whether it was waiting.
    pub(super) fn cancel(&mut self, cluster: &Cluster, model: u32, request: &Request) -> bool {
        let first = match self.order {
            LineOrder::Deadline => {
                let place = cluster.waiting(model as usize, *request).must_end_by;
                self.queries.partition_point(|other| other.place < place)
            }
            LineOrder::Arrival => 0,
        };
        let is_it = |query: &Query| query.model == model && query.waiting.request.id == request.id;
        let found = self.queries.iter().skip(first).position(is_it);
        found.is_some_and(|at| self.queries.remove(first + at).is_some())
    }

    /// The model's delays may have changed, and with them when its queries must end.
    pub(super) fn rekey(&mut self, cluster: &Cluster, model: u32) {
        for query in self.queries.iter_mut().filter(|query| query.model == model) {
            query.waiting = cluster.waiting(model as usize, query.waiting.request);
            if self.order == LineOrder::Deadline {
                query.place = query.waiting.must_end_by;
            }
        }
        self.queries.make_contiguous().sort_by_key(|query| query.place);
    }

    /// Removes all queries of the model.
    pub(super) fn forget(&mut self, model: u32) {
        self.queries.retain(|query| query.model != model);
    }

    /// Drops those of the first `examined` queries that could not end in time even on an idle GPU. Returns when the
    /// next of them is lost.
    pub(super) fn drop_lost(
        &mut self,
        cluster: &Cluster,
        now: Time,
        examined: usize,
        out: &mut ClusterActions,
    ) -> Time {
        let (mut at, mut next) = (0, Time::NEVER);
        while at < examined
            && let Some(query) = self.queries.get(at)
        {
            let lost_at = cluster.out_of_reach_at(query.model as usize, &query.waiting);
            if lost_at > now {
                next = next.min(lost_at);
                at += 1;
            } else {
                cluster.give_up(now, query.model as usize, &query.waiting, out);
                self.queries.remove(at);
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use symphony_types::{LatencyProfile, Nanos, RequestId, RequestValue};

    use super::*;
    use crate::cluster::model::ClusterModel;

    fn ms(millis: u64) -> Time {
        Time::ZERO + Nanos::from_millis(millis)
    }

    fn request(sequence: u64, deadline_ms: u64, items: u32) -> Request {
        let id = RequestId { sequence, ..RequestId::default() };
        Request { id, deadline: ms(deadline_ms), items, weight: RequestValue::ONE, variant: 0 }
    }

    /// One model with ℓ(b) = b + 5 ms and no GPU.
    fn cluster() -> Cluster {
        let mut cluster = Cluster::default();
        let profile = LatencyProfile::from_line(1.0, 5.0, 8).unwrap();
        cluster.set(0, Some(Arc::new(ClusterModel::new(profile, Nanos::from_millis(50)))));
        cluster
    }

    fn order(line: &Line) -> Vec<u64> {
        line.first(usize::MAX).map(|query| query.waiting.request.id.sequence).collect()
    }

    #[test]
    fn deadlines_or_arrivals_order_the_line_and_what_came_back_goes_first() {
        let (cluster, mut out) = (cluster(), ClusterActions::default());
        let line = |order, out: &mut ClusterActions| {
            let mut line = Line::new(order);
            for (sequence, deadline_ms, came) in [(1, 40, 1), (2, 20, 2), (3, 40, 3), (4, 60, 0)] {
                line.admit(&cluster, (0, request(sequence, deadline_ms, 1)), ms(came), out);
            }
            line
        };
        assert_eq!(order(&line(LineOrder::Deadline, &mut out)), [2, 1, 3, 4]);
        assert_eq!(order(&line(LineOrder::Arrival, &mut out)), [4, 1, 2, 3]);
        assert!(out.list.is_empty());
    }

    #[test]
    fn what_is_cancelled_lost_or_of_no_model_leaves_the_line() {
        let (cluster, mut out) = (cluster(), ClusterActions::default());
        let mut line = Line::new(LineOrder::Deadline);
        for (sequence, deadline_ms, items) in [(1, 20, 1), (2, 20, 8), (3, 30, 1)] {
            line.admit(&cluster, (0, request(sequence, deadline_ms, items)), ms(0), &mut out);
        }
        line.admit(&cluster, (7, request(4, 20, 1)), ms(0), &mut out);
        assert_eq!((out.list.len(), line.len()), (1, 3), "no such model");
        // Eight items take 13 ms, one takes 6.
        assert_eq!(line.drop_lost(&cluster, ms(7), 9, &mut out), ms(7) + Nanos::new(1));
        assert_eq!(line.drop_lost(&cluster, ms(7) + Nanos::new(1), 9, &mut out), ms(14) + Nanos::new(1));
        assert_eq!((out.list.len(), order(&line)), (2, vec![1, 3]));
        assert!(line.cancel(&cluster, 0, &request(3, 30, 1)) && !line.cancel(&cluster, 0, &request(3, 30, 1)));
        line.forget(0);
        assert_eq!(line.len(), 0);
    }
}
