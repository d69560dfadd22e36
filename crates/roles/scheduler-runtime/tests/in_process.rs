//! Models and GPUs come and go while requests arrive, without a network.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use symphony_protocol::dispatch::RequestHeader;
use symphony_protocol::execute::Execute;
use symphony_scheduler::{Delays, ModelQueueConfig, Policy};
use symphony_scheduler_runtime::{DecisionConfig, InProcess, Orders};
use symphony_types::{GpuClass, LatencyProfile, Nanos};

const MODELS: u32 = 4;
/// Limit for every wait.
const SOON: Duration = Duration::from_secs(60);

struct Scene {
    scheduler: InProcess,
    orders: Orders,
    next: u64,
    slo: Nanos,
    /// The last plan of each GPU; none of them is sealed again.
    last: BTreeMap<u32, u64>,
}

impl Scene {
    /// The policy defers for up to a second, with half a minute of slack for a busy machine.
    fn new(model_threads: u32, policy: Policy) -> Self {
        let (slo, guard) = match policy {
            Policy::EAGER => (Nanos::from_millis(60_000), Nanos::ZERO),
            _ => (Nanos::from_millis(31_000), Nanos::from_millis(30_000)),
        };
        let delays = Delays { guard, ..Delays::default() };
        let config = DecisionConfig { model_threads, ..DecisionConfig::default() };
        let (scheduler, orders) = InProcess::start(&config).unwrap();
        let scene = Self { scheduler, orders, next: 0, slo, last: BTreeMap::new() };
        for model in 0..MODELS {
            let profiles = LatencyProfile::from_line(0.1, 1.0, 8).unwrap().into();
            scene.scheduler.add_model(model, ModelQueueConfig { profiles, slo, policy, delays, requests_max: 1000 });
        }
        scene
    }

    /// Sends `count` requests for a model and returns their numbers.
    fn announce(&mut self, model: u32, count: u64) -> BTreeSet<u64> {
        let sequences = self.next..self.next + count;
        self.next += count;
        let budget = self.slo.get();
        let header = |sequence| RequestHeader { sequence, model, items: 1, budget, attempt: 1, weight: 1000 };
        let thread = model as usize % self.scheduler.model_threads();
        let now = self.scheduler.clock().now();
        self.scheduler.announce(thread, now, sequences.clone().map(header).collect()).unwrap();
        sequences.collect()
    }

    /// The plans that `wanted` requests end up in; `ends` says which plans end when they are seen.
    fn plans_of(&mut self, mut wanted: BTreeSet<u64>, ends: impl Fn(&Execute) -> bool) -> Vec<Execute> {
        let (mut plans, deadline) = (Vec::new(), Instant::now() + SOON);
        while !wanted.is_empty() {
            assert!(
                Instant::now() < deadline,
                "no plan for {wanted:?} within {SOON:?}: {:?}",
                self.scheduler.counters()
            );
            let Some(plan) = self.orders.plan() else { continue };
            let before = self.last.insert(plan.gpu.get(), plan.sequence).unwrap_or(0);
            assert_eq!(plan.sequence, before + 1, "out of sequence: a backend would end the link, {plan:?}");
            for request in &plan.requests {
                wanted.remove(&request.id.sequence);
            }
            if ends(&plan) {
                self.end(&plan);
            }
            plans.push(plan);
        }
        plans
    }

    fn end(&self, plan: &Execute) {
        self.scheduler.done(plan, Nanos::ZERO, Nanos::new(plan.latency), self.scheduler.clock().now());
    }

    fn until_ended(&mut self, count: usize) {
        let (mut ended, deadline) = (0, Instant::now() + SOON);
        while ended < count {
            assert!(Instant::now() < deadline, "{ended} of {count} ended within {SOON:?}");
            ended += self.orders.ended();
        }
        assert_eq!(ended, count);
    }
}

fn sequences<'a>(plans: impl IntoIterator<Item = &'a Execute>) -> BTreeSet<u64> {
    plans.into_iter().flat_map(|plan| plan.requests.iter().map(|request| request.id.sequence)).collect()
}

fn models_and_gpus_come_and_go(model_threads: u32, policy: Policy) {
    let mut scene = Scene::new(model_threads, policy);
    assert_eq!((scene.scheduler.add_gpu(GpuClass::FIRST), scene.scheduler.add_gpu(GpuClass::FIRST)), (0, 1));
    // GPU 0 never reports an end: it gets two plans at most, and the rest goes to GPU 1.
    let mut sent = BTreeSet::new();
    for model in (0..MODELS).cycle().take(20) {
        sent.extend(scene.announce(model, 3));
    }
    let plans = scene.plans_of(sent, |plan| plan.gpu.get() == 1);
    let stuck: Vec<_> = plans.iter().filter(|plan| plan.gpu.get() == 0).collect();
    assert!((1..=2).contains(&stuck.len()), "{} plans on a GPU that ends none", stuck.len());
    // It is lost: its requests run elsewhere.
    scene.scheduler.remove_gpu(0);
    let again = scene.plans_of(sequences(stuck), |_| true);
    assert!(again.iter().all(|plan| plan.gpu.get() == 1));
    // A model is gone: its requests fail, and others are served.
    scene.scheduler.remove_model(3);
    scene.announce(3, 10);
    scene.until_ended(10);
    let sent = scene.announce(2, 5);
    scene.plans_of(sent, |_| true);
    // A new GPU takes the place of the last one.
    let gpu = scene.scheduler.add_gpu(GpuClass::FIRST);
    scene.scheduler.remove_gpu(1);
    let sent = scene.announce(1, 5);
    let plans = scene.plans_of(sent, |_| true);
    assert!(plans.iter().any(|plan| plan.gpu.get() == gpu), "{plans:?}");
    let counters = scene.scheduler.counters();
    let counter = |name| counters.iter().find(|(counter, _)| *counter == name).unwrap().1;
    assert_eq!((counter("violations"), counter("failed_requests"), counter("dropped_requests")), (0, 10, 0));
}

#[test]
fn models_and_gpus_come_and_go_on_one_thread() {
    for policy in [Policy::EAGER, Policy::AUTO] {
        models_and_gpus_come_and_go(0, policy);
    }
}

#[test]
fn models_and_gpus_come_and_go_on_several_threads() {
    for policy in [Policy::EAGER, Policy::AUTO] {
        models_and_gpus_come_and_go(3, policy);
    }
}

/// Large frames on one thread and small ones on the others: turns of very different lengths that share GPUs.
#[test]
fn plans_of_several_threads_for_one_gpu_leave_in_sequence() {
    in_sequence(Policy::EAGER, 300);
    in_sequence(Policy::AUTO, 2);
}

fn in_sequence(policy: Policy, rounds: usize) {
    let mut scene = Scene::new(3, policy);
    scene.scheduler.add_gpu(GpuClass::FIRST);
    for _ in 0..rounds {
        let mut sent = BTreeSet::new();
        for (model, count) in [(0, 120), (1, 2), (2, 2), (3, 60)] {
            sent.extend(scene.announce(model, count));
        }
        scene.plans_of(sent, |_| true);
    }
}

/// The loss of the GPU has not been reported yet.
#[test]
fn a_closed_link_is_not_tried_again_and_again() {
    for model_threads in [0, 1, 3] {
        let mut scene = Scene::new(model_threads, Policy::EAGER);
        scene.scheduler.add_gpu(GpuClass::FIRST);
        drop(scene.orders);
        let frame = |sequence| RequestHeader {
            sequence,
            model: 0,
            items: 1,
            budget: Nanos::from_millis(60_000).get(),
            attempt: 1,
            weight: 1000,
        };
        let counter =
            |scheduler: &InProcess, name| scheduler.counters().iter().find(|(counter, _)| *counter == name).unwrap().1;
        let now = scene.scheduler.clock().now();
        scene.scheduler.announce(0, now, (0..8).map(frame).collect()).unwrap();
        let deadline = Instant::now() + SOON;
        while counter(&scene.scheduler, "requeued_requests") == 0 {
            assert!(Instant::now() < deadline, "no grant within {SOON:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
        let grants = counter(&scene.scheduler, "grants");
        assert_eq!(grants, 1, "{model_threads} model threads");
    }
}
