//! Leads that share decision threads, come and go under load, each with its own requests and its own outcomes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_protocol::dispatch::RequestHeader;
use symphony_scheduler::{Delays, ModelQueueConfig, Policy};
use symphony_scheduler_runtime::{DecisionConfig, DecisionThreads, InProcess, Orders};
use symphony_types::{GpuClass, LatencyProfile, Nanos};

/// Limit for every wait.
const SOON: Duration = Duration::from_secs(30);
const SLO: Nanos = Nanos::from_millis(60_000);
/// Requests of one frame.
const FRAME: u64 = 20;

struct Lead {
    scheduler: InProcess,
    orders: Orders,
    sent: u64,
    waiting: BTreeSet<u64>,
    plans: u64,
}

impl Lead {
    fn new(threads: &Arc<DecisionThreads>) -> Self {
        let (mut scheduler, orders) = InProcess::on(threads, None).unwrap();
        let config = ModelQueueConfig {
            profiles: LatencyProfile::from_line(0.1, 1.0, 8).unwrap().into(),
            slo: SLO,
            policy: Policy::EAGER,
            delays: Delays::default(),
            requests_max: 1 << 16,
        };
        scheduler.add_model(0, config);
        scheduler.add_gpu(GpuClass::FIRST);
        Self { scheduler, orders, sent: 0, waiting: BTreeSet::new(), plans: 0 }
    }

    fn announce(&mut self) {
        let sequences = self.sent..self.sent + FRAME;
        self.sent += FRAME;
        self.waiting.extend(sequences.clone());
        let header =
            |sequence| RequestHeader { sequence, model: 0, items: 1, budget: SLO.get(), attempt: 1, weight: 1000 };
        let now = self.scheduler.clock().now();
        self.scheduler.announce(0, now, sequences.map(header).collect()).unwrap();
    }

    /// Takes the plans that there are; each ends when it is seen.
    fn play(&mut self) {
        while let Some(plan) = self.orders.plan() {
            self.plans += 1;
            assert_eq!(plan.sequence, self.plans, "out of sequence, or another lead's: {plan:?}");
            for request in &plan.requests {
                assert!(self.waiting.remove(&request.id.sequence), "twice, or another lead's: {plan:?}");
            }
            self.scheduler.done(&plan, Nanos::ZERO, Nanos::new(plan.latency), self.scheduler.clock().now());
        }
    }
}

#[test]
fn leads_come_and_go_under_load_and_the_others_miss_nothing() {
    const LEADS: usize = 12;
    const ROUNDS: usize = 60;
    let config = DecisionConfig { shared_threads: 2, ..DecisionConfig::default() };
    let threads = Arc::new(DecisionThreads::new(config));
    let mut leads: Vec<_> = (0..LEADS).map(|_| Lead::new(&threads)).collect();
    let begun = Instant::now();
    for round in 0..ROUNDS {
        for lead in &mut leads {
            lead.announce();
            lead.play();
        }
        // A lead with waiting requests and pending wake-ups leaves, and another one comes.
        let place = round % LEADS;
        leads[place].announce();
        leads[place] = Lead::new(&threads);
        leads[place].announce();
    }
    while leads.iter().any(|lead| !lead.waiting.is_empty()) {
        assert!(begun.elapsed() < SOON, "no plans for {:?}", leads.iter().map(|l| l.waiting.len()).collect::<Vec<_>>());
        leads.iter_mut().for_each(Lead::play);
        std::thread::yield_now();
    }
    for lead in &leads {
        let counters = lead.scheduler.counters();
        let counter = |name| counters.iter().find(|(counter, _)| *counter == name).unwrap().1;
        assert_eq!((counter("requests"), counter("planned_requests")), (lead.sent, lead.sent));
        assert_eq!((counter("violations"), counter("dropped_requests"), counter("failed_requests")), (0, 0, 0));
    }
}
