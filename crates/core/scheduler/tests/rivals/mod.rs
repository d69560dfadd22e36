//! What rival policies order, action by action, and what they keep whatever comes. ℓ(b) = 1·b + 5 ms throughout.

mod clockwork;
mod kairos;
mod nexus;
mod promises;
mod shepherd;
mod skeleton;

use std::sync::Arc;

use symphony_scheduler::{
    ClusterAction, ClusterActions, ClusterFacts, ClusterInput, ClusterModel, ClusterPolicy, Delays, Plan,
};
use symphony_types::{GpuClass, GpuId, LatencyProfile, Nanos, Time};

use crate::request::request;

fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn after(time: Time) -> Time {
    time + Nanos::new(1)
}

/// Models with these SLOs in milliseconds and 100 items per second each.
fn cluster(slos_ms: &[u64], batch_max: u32, delays: Delays) -> Vec<Arc<ClusterModel>> {
    let profile = LatencyProfile::from_line(1.0, 5.0, batch_max).unwrap();
    let model = |&slo_ms: &u64| {
        let model = ClusterModel::new(profile.clone(), Nanos::from_millis(slo_ms));
        Arc::new(model.with_delays(delays).with_rate(100.0))
    };
    slos_ms.iter().map(model).collect()
}

/// As the simulator's: GPUs can be stopped.
fn facts() -> ClusterFacts {
    ClusterFacts::simulated(0)
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

    /// With these models.
    fn with_models(mut self, models: Vec<Arc<ClusterModel>>) -> Self {
        for (model, known) in (0..).zip(models) {
            assert_eq!(self.step(Time::ZERO, ClusterInput::Model { model, known }), []);
        }
        self
    }

    /// With GPUs of the first class that are free at these times.
    fn with_gpus(mut self, free_at: &[Time]) -> Self {
        for (gpu, &free_at) in (0..).zip(free_at) {
            assert_eq!(self.up(Time::ZERO, gpu, 0, free_at), []);
        }
        self
    }

    fn up(&mut self, now: Time, gpu: u32, class: usize, free_at: Time) -> Vec<Order> {
        let class = GpuClass::new(class).unwrap();
        self.step(now, ClusterInput::GpuUp { gpu: GpuId::new(gpu), class, free_at })
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
        let (start, start_late, latency) = (Time::ZERO, Nanos::ZERO, Nanos::ZERO);
        self.step(now, ClusterInput::Done { gpu: GpuId::new(gpu), model, start, start_late, latency })
    }

    fn wake(&mut self, now: Time) -> Vec<Order> {
        self.step(now, ClusterInput::Wake)
    }
}
