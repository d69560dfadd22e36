//! The smallest policy for a whole cluster, to copy from: requests run one by one, in the order in which they arrived.
//! The steps from here to a policy with a name are in docs/internals/recipes/policy.md.

use std::collections::{BTreeMap, VecDeque};

use symphony_scheduler::rivals::Cluster;
use symphony_scheduler::{
    ClusterAction, ClusterActions, ClusterInput, ClusterPolicy, Delays, Plan, QUEUE_REQUESTS_MAX, Request,
};
use symphony_types::{DropReason, GpuId, Time};

use crate::{Host, Order, cluster, ms};

/// First come, first served, in batches of one request.
pub(crate) struct Skeleton {
    cluster: Cluster,
    /// Model and request, in the order of arrival.
    queue: VecDeque<(u32, Request)>,
    /// When each usable GPU is free; none while it runs a plan.
    gpus: BTreeMap<GpuId, Option<Time>>,
}

impl Skeleton {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster, queue: VecDeque::new(), gpus: BTreeMap::new() }
    }

    /// Gives each free GPU the next request that it can answer in time, and drops those that it cannot.
    fn dispatch(&mut self, now: Time, out: &mut ClusterActions) {
        for (&gpu, free_at) in &mut self.gpus {
            while let Some(free) = *free_at
                && let Some((model, request)) = self.queue.pop_front()
            {
                let Some(plan) = plan(&self.cluster, now, gpu, free, model, &request) else {
                    drop_request(model, request, DropReason::SloUnreachable, out);
                    continue;
                };
                // The requests of a plan stand in `planned`, from `plan.first` on.
                let plan = Plan { first: out.planned.len() as u32, ..plan };
                out.planned.push(request);
                out.list.push(ClusterAction::Execute { model, plan });
                *free_at = None;
            }
        }
    }
}

impl ClusterPolicy for Skeleton {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Arrive { model, request } | ClusterInput::Return { model, request } => {
                if self.queue.len() >= QUEUE_REQUESTS_MAX {
                    return drop_request(model, request, DropReason::QueueFull, out);
                }
                self.queue.push_back((model, request));
            }
            ClusterInput::GpuUp { gpu, free_at } => _ = self.gpus.insert(gpu, Some(free_at)),
            ClusterInput::GpuDown(gpu) => _ = self.gpus.remove(&gpu),
            ClusterInput::Done { gpu, .. } => {
                if let Some(free_at) = self.gpus.get_mut(&gpu) {
                    *free_at = Some(now);
                }
            }
            ClusterInput::Wake => {}
        }
        self.dispatch(now, out);
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }
}

/// The request alone on this GPU; none if it cannot end in time.
fn plan(cluster: &Cluster, now: Time, gpu: GpuId, free_at: Time, model: u32, request: &Request) -> Option<Plan> {
    let (profile, batch) = (&cluster.models[model as usize].profile, request.items);
    if batch > profile.batch_max() {
        return None;
    }
    // Inputs must have come before the batch starts (the lead); the answer travels after it has ended (the reply).
    let start = (now + cluster.delays.lead(batch)).max(free_at);
    let end = start + profile.latency(batch);
    let must_end_by = request.deadline - cluster.delays.reply;
    (end <= must_end_by).then_some(Plan { gpu, start, end, batch, must_end_by, first: 0, requests: 1, why: None })
}

fn drop_request(model: u32, request: Request, reason: DropReason, out: &mut ClusterActions) {
    out.list.push(ClusterAction::Drop { model, request, reason, cause: None });
}

#[test]
fn requests_run_one_by_one_in_the_order_of_arrival() {
    let policy = Skeleton::new(cluster(&[40, 60], 8, Delays::default()));
    let mut host = Host::new(policy).with_gpus(&[Time::ZERO]);
    assert_eq!(host.arrive(ms(1), 0, 1, ms(41)), [Order::Execute(0, 0, ms(1), ms(7), vec![1])]);
    assert_eq!(host.arrive(ms(2), 1, 2, ms(12)), []);
    assert_eq!(host.arrive(ms(3), 0, 3, ms(43)), []);
    // The second could end at 13 ms, which is too late.
    let expected = [Order::Drop(2, "slo_unreachable"), Order::Execute(0, 0, ms(7), ms(13), vec![3])];
    assert_eq!(host.done(ms(7), 0, 0), expected);
}
