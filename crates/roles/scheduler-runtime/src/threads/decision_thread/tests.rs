use std::cell::Cell;

use symphony_protocol::dispatch::RequestHeader;
use symphony_protocol::execute::Execute;
use symphony_scheduler::{Delays, ModelQueueConfig, Policy};
use symphony_types::{GpuClass, LatencyProfile, Nanos};

use super::*;
use crate::in_process::{InProcess, Orders};
use crate::threads::decision_threads::DecisionThreads;
use crate::threads::worker::TURN_EVENTS_MAX;
use crate::workers::decision_config::DecisionConfig;

/// Leads on one thread; the test runs its turns and sets its time.
struct Scene {
    thread: Arc<DecisionThread>,
    threads: Arc<DecisionThreads>,
    groups: WorkerGroups,
    now: Cell<Time>,
}

struct Lead {
    scheduler: InProcess,
    orders: Orders,
    sequence: u64,
}

impl Scene {
    fn new() -> Self {
        let thread =
            DecisionThread::new("decide-0".into(), (0, ThreadSharing::Any), Clock::start(), None, Arc::default());
        let threads = DecisionThreads::new(DecisionConfig { shared_threads: 1, ..DecisionConfig::default() });
        threads.host_on(&thread);
        let now = Cell::new(threads.clock().now());
        Self { thread, threads: Arc::new(threads), groups: WorkerGroups::default(), now }
    }

    /// A lead of one model and one GPU that takes every request at once.
    fn lead(&mut self) -> Lead {
        let (mut scheduler, orders) = InProcess::on(&self.threads, None).unwrap();
        let config = ModelQueueConfig {
            profiles: LatencyProfile::from_line(0.1, 1.0, 8).unwrap().into(),
            slo: Nanos::from_millis(60_000),
            policy: Policy::EAGER,
            delays: Delays::default(),
            requests_max: 1 << 16,
        };
        scheduler.add_model(0, config);
        scheduler.add_gpu(GpuClass::FIRST);
        // The GPU is free from now on by the real clock.
        self.now.set(self.now.get().max(scheduler.clock().now()));
        Lead { scheduler, orders, sequence: 0 }
    }

    fn step(&mut self) -> Step {
        let clock = || {
            self.now.set(self.now.get() + Nanos::from_micros(1));
            self.now.get()
        };
        self.thread.step(&mut self.groups, self.now.get(), &clock)
    }

    /// Runs until there is nothing to do before a timer.
    fn run(&mut self) {
        while matches!(self.step(), Step::Turn(_)) {}
    }
}

impl Lead {
    fn announce(&mut self, now: Time, requests: u64) {
        let sequences = self.sequence..self.sequence + requests;
        self.sequence += requests;
        let budget = Nanos::from_millis(60_000).get();
        let header = |sequence| RequestHeader { sequence, model: 0, items: 1, budget, attempt: 1, weight: 1000 };
        self.scheduler.announce(0, now, sequences.map(header).collect()).unwrap();
    }

    fn end(&self, now: Time, plan: &Execute) {
        self.scheduler.done(plan, Nanos::ZERO, Nanos::new(plan.latency), now);
    }

    fn taken_in(&self) -> u64 {
        self.scheduler.taken_in().sum()
    }
}

#[test]
fn a_lead_beside_a_flood_dispatches_in_order_and_waits_for_one_turn_at_a_time() {
    const FLOOD: u64 = 40_000;
    let mut scene = Scene::new();
    let (mut loud, mut calm) = (scene.lead(), scene.lead());
    scene.run();
    for _ in 0..FLOOD / 100 {
        loud.announce(scene.now.get(), 100);
    }
    for round in 0..30 {
        calm.announce(scene.now.get(), 1);
        let before = loud.taken_in();
        // Its request, and then the grant for it, each behind one turn of the other.
        let plan = (0..4).find_map(|_| {
            scene.step();
            calm.orders.plan()
        });
        let plan = plan.unwrap_or_else(|| panic!("round {round}: not dispatched in four turns"));
        assert_eq!((plan.sequence, plan.requests.len(), plan.requests[0].id.sequence), (round + 1, 1, round));
        assert!(loud.taken_in() - before <= 2 * TURN_EVENTS_MAX as u64, "bounded work per turn");
        calm.end(scene.now.get(), &plan);
    }
    assert!(loud.taken_in() < FLOOD, "the flood was over before the end: it shows nothing");
    scene.run();
    assert_eq!(loud.taken_in(), FLOOD);
    assert!(loud.orders.plan().is_some());
}

#[test]
fn a_lead_that_ends_while_it_is_woken_decides_nothing_more_and_leaves_its_slot_to_the_next() {
    let mut scene = Scene::new();
    let (mut ending, mut staying) = (scene.lead(), scene.lead());
    scene.run();
    ending.announce(scene.now.get(), 10);
    staying.announce(scene.now.get(), 1);
    let Lead { scheduler, mut orders, .. } = ending;
    assert_eq!(scene.thread.groups(), 2);
    drop(scheduler);
    scene.run();
    assert_eq!(scene.thread.groups(), 1);
    assert!(orders.plan().is_none());
    assert!(staying.orders.plan().is_some());
    // Its links close when the group is dropped.
    assert_eq!(scene.thread.gone.len(), 1);
    drop(scene.thread.gone());
    assert_eq!(scene.thread.gone.len(), 0);
    let mut next = scene.lead();
    next.announce(scene.now.get(), 1);
    scene.run();
    assert_eq!((scene.thread.groups(), scene.thread.slots_ever.load(Ordering::Relaxed)), (2, 2));
    assert!(next.orders.plan().is_some());
}

#[test]
fn a_lead_that_ends_before_it_sat_down_goes_too() {
    let mut scene = Scene::new();
    let lead = scene.lead();
    drop(lead);
    scene.run();
    assert_eq!((scene.thread.groups(), scene.thread.gone.len()), (0, 1));
}
