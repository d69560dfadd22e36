//! Random arrivals, failures of GPUs and execution times that differ from the profile: whatever comes, every request
//! ends once, no GPU gets a plan that should have reported an end, and while execution is exact no plan breaks S1 or
//! S2.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use symphony_scheduler::rivals::{
    Clkwrk, Clockwork, ClockworkSettings, Drs, Kairos, KairosSettings, Nexus, NexusSettings, Ribbon, Shepherd,
    ShepherdSettings,
};
use symphony_scheduler::{
    ClusterAction, ClusterActions, ClusterInput, ClusterPolicy, DataDelay, Delays, Plan, PlanCheck, Request,
};
use symphony_types::{GpuClass, GpuId, Nanos, RequestId, Time};

use super::skeleton::Skeleton;
use super::{cluster, facts};

const MODELS: u32 = 3;
const GPUS: u32 = 3;
/// Far more than there are things to talk about.
const EVENTS_MAX: usize = 20_000;

#[derive(Clone, Copy, Debug)]
enum Op {
    Pass { nanos: u64 },
    Arrive { model: u32, items: u32, budget: u64 },
    Down { gpu: u32 },
    Up { gpu: u32, after: u64 },
}

/// A plan on a GPU: really running from when it started to `end`.
struct Run {
    model: u32,
    plan: Plan,
    start: Time,
    end: Time,
    requests: Vec<Request>,
}

struct World<P> {
    now: Time,
    policy: P,
    delays: Delays,
    wake_at: Time,
    gpus: Vec<Option<VecDeque<Run>>>,
    /// Requests that the policy must hold.
    waiting: BTreeMap<RequestId, (u32, Request)>,
    arrived: u64,
    ended: u64,
    check: PlanCheck,
    /// Executions take this many percent of what the profile says.
    percent: u64,
}

impl<P: ClusterPolicy> World<P> {
    fn new(mut policy: P, delays: Delays, percent: u64) -> Self {
        let gpus = (0..GPUS).map(|_| None).collect();
        let (now, check) = (Time::from_nanos(3_600_000_000_000), PlanCheck::new(GPUS));
        let (wake_at, waiting) = (Time::NEVER, BTreeMap::new());
        for (model, known) in (0..).zip(cluster(&[40, 60, 25], 8, delays)) {
            policy.step(now, ClusterInput::Model { model, known }, &mut ClusterActions::default());
        }
        Self { now, policy, delays, wake_at, gpus, waiting, arrived: 0, ended: 0, check, percent }
    }

    fn step(&mut self, input: ClusterInput) {
        let mut actions = ClusterActions::default();
        self.policy.step(self.now, input, &mut actions);
        for action in &actions.list {
            match action {
                ClusterAction::Execute { model, plan } => self.execute(*model, plan, actions.requests_of(plan)),
                ClusterAction::Preempt(gpu) => {
                    for run in self.stop(*gpu) {
                        self.waiting.extend(run.requests.iter().map(|request| (request.id, (run.model, *request))));
                    }
                }
                ClusterAction::Drop { model, request, .. } => self.end_waiting(*model, request),
                ClusterAction::WakeAt(at) => self.wake_at = *at,
            }
        }
        assert_eq!(self.policy.waiting(), self.waiting.len(), "a request is lost or counted twice");
    }

    fn execute(&mut self, model: u32, plan: &Plan, requests: &[Request]) {
        assert_eq!(requests.iter().map(|request| request.items).sum::<u32>(), plan.batch);
        assert!(plan.batch > 0 && plan.start >= self.now + self.delays.lead(plan.batch), "{plan:?} at {}", self.now);
        if self.percent == 100 {
            self.check.check(self.now, plan).unwrap_or_else(|violation| panic!("{violation}"));
            assert!(requests.iter().all(|request| plan.end + self.delays.reply <= request.deadline), "{plan:?}");
        }
        for request in requests {
            self.end_waiting(model, request);
            // It ends with the plan.
            self.ended -= 1;
        }
        let runs = self.gpus[plan.gpu.get() as usize].as_mut().expect("nothing is sent to a GPU that has failed");
        // A plan that had to wait for the one before it is as much later.
        let due = |run: &Run| run.start + run.plan.end.since(run.plan.start);
        let is_overdue = runs.front().is_some_and(|run| due(run) < self.now);
        assert!(!is_overdue, "{plan:?} is for a GPU that has not reported the end of its plan, at {}", self.now);
        let start = runs.back().map_or(plan.start, |last| last.end.max(plan.start));
        let end = start + Nanos::new(plan.end.since(plan.start).get() * self.percent / 100);
        runs.push_back(Run { model, plan: *plan, start, end, requests: requests.to_vec() });
    }

    fn end_waiting(&mut self, model: u32, request: &Request) {
        let held = self.waiting.remove(&request.id);
        assert_eq!(held, Some((model, *request)), "it ends twice or is another's");
        self.ended += 1;
    }

    fn stop(&mut self, gpu: GpuId) -> Vec<Run> {
        self.check.busy_until(gpu, self.now);
        let runs = self.gpus[gpu.get() as usize].as_mut();
        runs.map(|runs| runs.drain(..).collect()).unwrap_or_default()
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Pass { nanos } => self.run_until(self.now + Nanos::new(nanos)),
            Op::Arrive { model, items, budget } => {
                self.arrived += 1;
                let id = RequestId { sequence: self.arrived, ..RequestId::default() };
                let request = Request {
                    id,
                    deadline: self.now + Nanos::new(budget),
                    items,
                    weight: symphony_types::RequestValue::ONE,
                    variant: 0,
                };
                self.waiting.insert(id, (model, request));
                self.step(ClusterInput::Arrive { model, request });
            }
            Op::Down { gpu } => {
                let id = GpuId::new(gpu);
                let lost = self.stop(id);
                self.gpus[gpu as usize] = None;
                self.step(ClusterInput::GpuDown(id));
                for Run { model, requests, .. } in lost {
                    for request in requests {
                        self.waiting.insert(request.id, (model, request));
                        self.step(ClusterInput::Return { model, request });
                    }
                }
            }
            Op::Up { gpu, after } => {
                if self.gpus[gpu as usize].is_none() {
                    let (gpu, free_at) = (GpuId::new(gpu), self.now + Nanos::new(after));
                    self.gpus[gpu.get() as usize] = Some(VecDeque::new());
                    self.check.busy_until(gpu, free_at);
                    self.step(ClusterInput::GpuUp { gpu, class: GpuClass::FIRST, free_at });
                }
            }
        }
    }

    /// Follows ends and wake-ups up to this time; returns whether there are more.
    fn run_until(&mut self, until: Time) {
        for _ in 0..EVENTS_MAX {
            let running = (0..).zip(&self.gpus).filter_map(|(gpu, runs)| Some((runs.as_ref()?.front()?.end, gpu)));
            let next = running.min();
            let at = next.map_or(Time::NEVER, |(end, _)| end).min(self.wake_at);
            if at == Time::NEVER || at > until {
                self.now = self.now.max(until.min(Time::from_nanos(u64::MAX / 2)));
                return;
            }
            self.now = self.now.max(at);
            match next {
                Some((end, gpu)) if end == at => self.end_run(gpu),
                _ => {
                    self.wake_at = Time::NEVER;
                    self.step(ClusterInput::Wake);
                }
            }
        }
        panic!("the policy goes round in circles at {}", self.now);
    }

    fn end_run(&mut self, gpu: u32) {
        let run = self.gpus[gpu as usize].as_mut().and_then(VecDeque::pop_front).expect("it was seen");
        self.ended += run.requests.len() as u64;
        self.step(ClusterInput::Done {
            gpu: GpuId::new(gpu),
            model: run.model,
            start: run.plan.start,
            start_late: run.start.since(run.plan.start),
            latency: run.end.since(run.start),
        });
    }

    fn keeps_its_promises(mut self, ops: Vec<Op>) {
        (0..GPUS).for_each(|gpu| self.apply(Op::Up { gpu, after: 0 }));
        ops.into_iter().for_each(|op| self.apply(op));
        // Requests without a deadline end only if there are GPUs.
        (0..GPUS).for_each(|gpu| self.apply(Op::Up { gpu, after: 0 }));
        self.run_until(Time::NEVER);
        assert!(self.waiting.is_empty(), "never ends: {:?}", self.waiting);
        assert_eq!(self.arrived, self.ended);
    }
}

fn op() -> impl Strategy<Value = Op> {
    let items = prop_oneof![8 => Just(1_u32), 3 => 2..8_u32, 1 => 8..20_u32, 1 => Just(u32::MAX)];
    let budget = prop_oneof![10 => 0..80_000_000_u64, 1 => Just(0), 1 => Just(u64::MAX)];
    prop_oneof![
        4 => (0..8_000_000_u64).prop_map(|nanos| Op::Pass { nanos }),
        10 => (0..MODELS, items, budget).prop_map(|(model, items, budget)| Op::Arrive { model, items, budget }),
        1 => (0..GPUS).prop_map(|gpu| Op::Down { gpu }),
        1 => (0..GPUS, 0..20_000_000_u64).prop_map(|(gpu, after)| Op::Up { gpu, after }),
    ]
}

fn delays() -> impl Strategy<Value = Delays> {
    let micros = || (0..2_000_u64).prop_map(Nanos::from_micros);
    let some = (micros(), micros(), micros());
    let some = some.prop_map(|(control, d, reply)| Delays {
        control,
        data: DataDelay::each_item(d),
        reply,
        guard: Nanos::ZERO,
    });
    prop_oneof![Just(Delays::default()), some]
}

/// As planned, faster, slower.
fn percent() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(100_u64), 1 => 50..100_u64, 1 => 101..180_u64]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn clockwork_keeps_its_promises(
        ops in prop::collection::vec(op(), 0..120), delays in delays(), percent in percent(), commit_ms in 0..12_u64,
    ) {
        let (commit, early) = (Nanos::from_millis(commit_ms), Nanos::from_millis(5));
        let settings = ClockworkSettings { commit, early };
        let policy = Clockwork::new(&facts(), settings);
        World::new(policy, delays, percent).keeps_its_promises(ops);
    }

    #[test]
    fn nexus_keeps_its_promises(
        ops in prop::collection::vec(op(), 0..120), delays in delays(), percent in percent(), frontends in 1..4_u32,
    ) {
        let policy = Nexus::new(&facts(), NexusSettings { frontends, seed: 7 });
        World::new(policy, delays, percent).keeps_its_promises(ops);
    }

    #[test]
    fn shepherd_keeps_its_promises(
        ops in prop::collection::vec(op(), 0..120), delays in delays(), percent in percent(), factor in 1.0..4.0_f64,
    ) {
        let settings = ShepherdSettings { preempt_factor: factor };
        let policy = Shepherd::new(&facts(), settings);
        World::new(policy, delays, percent).keeps_its_promises(ops);
    }

    #[test]
    fn kairos_and_its_rivals_keep_their_promises(
        ops in prop::collection::vec(op(), 0..120), delays in delays(), percent in percent(), threshold in 1..8_u32,
    ) {
        let ops = || ops.clone();
        World::new(Kairos::new(&facts(), KairosSettings::default()), delays, percent).keeps_its_promises(ops());
        World::new(Ribbon::new(&facts()), delays, percent).keeps_its_promises(ops());
        World::new(Drs::new(&facts(), Some(threshold)), delays, percent).keeps_its_promises(ops());
        World::new(Clkwrk::new(&facts()), delays, percent).keeps_its_promises(ops());
    }

    #[test]
    fn the_skeleton_keeps_its_promises(
        ops in prop::collection::vec(op(), 0..120), delays in delays(), percent in percent(),
    ) {
        World::new(Skeleton::default(), delays, percent).keeps_its_promises(ops);
    }
}
