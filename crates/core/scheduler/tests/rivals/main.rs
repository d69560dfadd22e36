//! What rival policies order, action by action, and what they keep whatever comes. ℓ(b) = 1·b + 5 ms throughout.

mod clockwork;
mod nexus;
mod promises;
mod shepherd;
mod skeleton;

use symphony_scheduler::rivals::{Cluster, ClusterModel};
use symphony_scheduler::{ClusterAction, ClusterActions, ClusterInput, ClusterPolicy, Delays, Plan, Request};
use symphony_types::{GpuId, LatencyProfile, Nanos, RequestId, Time};

fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn after(time: Time) -> Time {
    time + Nanos::new(1)
}

/// Models with these SLOs in milliseconds and 100 items per second each.
fn cluster(slos_ms: &[u64], batch_max: u32, delays: Delays) -> Cluster {
    let profile = LatencyProfile::from_line(1.0, 5.0, batch_max).unwrap();
    let model = |&slo_ms: &u64| ClusterModel {
        profile: profile.clone(),
        slo: Nanos::from_millis(slo_ms),
        rate_per_second: 100.0,
    };
    Cluster { models: slos_ms.iter().map(model).collect(), delays }
}

fn request(sequence: u64, deadline: Time) -> Request {
    Request {
        id: RequestId { sequence, ..RequestId::default() },
        deadline,
        items: 1,
        weight: symphony_types::RequestValue::ONE,
    }
}

/// One step at a time; a plan is shown with the sequence numbers of its requests.
struct Host<P> {
    policy: P,
    actions: ClusterActions,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Order {
    /// (model, GPU, start, end, requests)
    Execute(u32, u32, Time, Time, Vec<u64>),
    Preempt(u32),
    Drop(u64, &'static str),
    WakeAt(Time),
}

impl<P: ClusterPolicy> Host<P> {
    fn new(policy: P) -> Self {
        Self { policy, actions: ClusterActions::default() }
    }

    /// With GPUs that are free at these times.
    fn with_gpus(mut self, free_at: &[Time]) -> Self {
        for (gpu, &free_at) in (0..).zip(free_at) {
            assert_eq!(self.step(Time::ZERO, ClusterInput::GpuUp { gpu: GpuId::new(gpu), free_at }), []);
        }
        self
    }

    fn step(&mut self, now: Time, input: ClusterInput) -> Vec<Order> {
        self.actions.clear();
        self.policy.step(now, input, &mut self.actions);
        let order = |action: &ClusterAction| match action {
            ClusterAction::Execute { model, plan } => self.executed(*model, plan),
            ClusterAction::Preempt(gpu) => Order::Preempt(gpu.get()),
            ClusterAction::Drop { request, reason, .. } => Order::Drop(request.id.sequence, reason.label()),
            ClusterAction::WakeAt(at) => Order::WakeAt(*at),
        };
        self.actions.list.iter().map(order).collect()
    }

    fn executed(&self, model: u32, plan: &Plan) -> Order {
        let requests = self.actions.requests_of(plan);
        assert_eq!(requests.iter().map(|request| request.items).sum::<u32>(), plan.batch);
        assert_eq!(requests.iter().map(|request| request.deadline).min(), Some(plan.must_end_by));
        let sequences = requests.iter().map(|request| request.id.sequence).collect();
        Order::Execute(model, plan.gpu.get(), plan.start, plan.end, sequences)
    }

    fn arrive(&mut self, now: Time, model: u32, sequence: u64, deadline: Time) -> Vec<Order> {
        self.step(now, ClusterInput::Arrive { model, request: request(sequence, deadline) })
    }

    fn done(&mut self, now: Time, gpu: u32, model: u32) -> Vec<Order> {
        let (start_late, latency) = (Nanos::ZERO, Nanos::ZERO);
        self.step(now, ClusterInput::Done { gpu: GpuId::new(gpu), model, start_late, latency })
    }

    fn wake(&mut self, now: Time) -> Vec<Order> {
        self.step(now, ClusterInput::Wake)
    }
}
