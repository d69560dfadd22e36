//! The smallest policy for a whole cluster, to copy from: requests run one by one, in the order in which they arrived.
//! The steps from here to a policy with a name are in docs/internals/recipes/policy.md.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use symphony_scheduler::{
    ClusterActions, ClusterInput, ClusterModel, ClusterPolicy, Delays, QUEUE_REQUESTS_MAX, Request,
};
use symphony_types::{DropReason, GpuClass, GpuId, Time};

use super::{Host, Order, cluster, ms};

/// First come, first served, in batches of one request.
#[derive(Default)]
pub(crate) struct Skeleton {
    models: BTreeMap<u32, Arc<ClusterModel>>,
    /// Model and request, in the order of arrival.
    queue: VecDeque<(u32, Request)>,
    /// The class of each usable GPU, and when it is free; none while it runs a plan.
    gpus: BTreeMap<GpuId, (GpuClass, Option<Time>)>,
}

impl Skeleton {
    /// Gives each free GPU the next request that it can answer in time, and drops those that it cannot.
    fn dispatch(&mut self, now: Time, out: &mut ClusterActions) {
        for (&gpu, (class, free_at)) in &mut self.gpus {
            while let Some(free) = *free_at
                && let Some((model, request)) = self.queue.pop_front()
            {
                let known = self.models.get(&model);
                let known = known.filter(|m| m.finish(*class, now, free, request.items) <= m.must_end_by(&request));
                let plan = known.and_then(|known| {
                    let start = known.start(now, free, request.items);
                    out.plan(model, known, (gpu, *class), start, [request])
                });
                match plan {
                    Some(_) => *free_at = None,
                    None => out.give_up(model, request, DropReason::SloUnreachable),
                }
            }
        }
    }
}

impl ClusterPolicy for Skeleton {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Arrive { model, request } | ClusterInput::Return { model, request } => {
                if self.queue.len() >= QUEUE_REQUESTS_MAX {
                    return out.give_up(model, request, DropReason::QueueFull);
                }
                self.queue.push_back((model, request));
            }
            ClusterInput::Cancel { request, .. } => self.queue.retain(|(_, other)| other.id != request.id),
            ClusterInput::Model { model, known } => _ = self.models.insert(model, known),
            ClusterInput::ModelGone(model) => {
                self.models.remove(&model);
                self.queue.retain(|(of, _)| *of != model);
            }
            ClusterInput::GpuUp { gpu, class, free_at } => _ = self.gpus.insert(gpu, (class, Some(free_at))),
            ClusterInput::GpuDown(gpu) => _ = self.gpus.remove(&gpu),
            ClusterInput::Done { gpu, .. } | ClusterInput::Refused { gpu, .. } => {
                if let Some((_, free_at)) = self.gpus.get_mut(&gpu) {
                    *free_at = Some(now);
                }
            }
            _ => {}
        }
        self.dispatch(now, out);
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }
}

#[test]
fn requests_run_one_by_one_in_the_order_of_arrival() {
    let host = Host::new(Skeleton::default()).with_models(cluster(&[40, 60], 8, Delays::default()));
    let mut host = host.with_gpus(&[Time::ZERO]);
    assert_eq!(host.arrive(ms(1), 0, 1, ms(41)), [Order::Execute(0, 0, ms(1), ms(7), vec![1])]);
    assert_eq!(host.arrive(ms(2), 1, 2, ms(12)), []);
    assert_eq!(host.arrive(ms(3), 0, 3, ms(43)), []);
    // The second could end at 13 ms, which is too late.
    let expected = [Order::Drop(2, "slo_unreachable"), Order::Execute(0, 0, ms(7), ms(13), vec![3])];
    assert_eq!(host.done(ms(7), 0, 0), expected);
}
