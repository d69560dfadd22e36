//! Requests that no GPU can take yet.

use symphony_types::Time;

use super::cluster::Cluster;
use super::deadline_queue::DeadlineQueue;
use crate::actions::Request;
use crate::cluster_policy::ClusterActions;

/// Requests of models that run on no usable GPU, as when a lead begins before its GPUs are linked: they wait for one as
/// long as it could still meet them.
#[derive(Clone, Debug, Default)]
pub(super) struct UnplacedRequests {
    /// By model.
    queues: Vec<DeadlineQueue>,
    requests: usize,
}

impl UnplacedRequests {
    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.requests
    }

    /// Takes a request in, or drops it if no such model is known or too many wait.
    pub(super) fn admit(&mut self, cluster: &Cluster, model: u32, request: Request, out: &mut ClusterActions) {
        let slots = self.queues.len().max(cluster.slots());
        self.queues.resize(slots, DeadlineQueue::default());
        if cluster.enqueue(model, request, self.queues.get_mut(model as usize), out) {
            self.requests += 1;
        }
    }

    /// All of them leave, by model.
    pub(super) fn take(&mut self) -> Vec<(usize, Request)> {
        self.requests = 0;
        let queues = self.queues.iter_mut().enumerate();
        queues.flat_map(|(model, queue)| queue.drain(0, usize::MAX).map(move |one| (model, one.request))).collect()
    }

    /// Removes a request that was cancelled, if it is here.
    pub(super) fn cancel(&mut self, cluster: &Cluster, model: usize, request: &Request) {
        let must_end_by = cluster.waiting(model, *request).must_end_by;
        if self.queues.get_mut(model).is_some_and(|queue| queue.remove(request, must_end_by)) {
            self.requests -= 1;
        }
    }

    /// The model has changed, or has gone with its requests.
    pub(super) fn model_changed(&mut self, cluster: &Cluster, model: usize) {
        let Some(queue) = self.queues.get_mut(model) else { return };
        match cluster.get(model) {
            Some(known) => queue.rekey(|request| known.must_end_by(request)),
            None => self.requests -= queue.clear(),
        }
    }

    /// Drops what not even an idle GPU could meet. Returns when the next one is lost.
    pub(super) fn drop_lost(&mut self, cluster: &Cluster, now: Time, out: &mut ClusterActions) -> Time {
        let mut next = Time::NEVER;
        if self.requests == 0 {
            return next;
        }
        for (model, queue) in self.queues.iter_mut().enumerate() {
            while let Some(&head) = queue.head() {
                let lost_at = cluster.out_of_reach_at(model, &head);
                if lost_at > now {
                    next = next.min(lost_at);
                    break;
                }
                queue.pop_front();
                self.requests -= 1;
                cluster.give_up(now, model, &head, out);
            }
        }
        next
    }
}
