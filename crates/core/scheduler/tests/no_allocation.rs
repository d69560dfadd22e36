//! No heap in a decision: after a warm-up, queues and ranker live in the memory they have.
//!
//! One test function, because the counting allocator counts the whole process: two at once would count each other.

use std::alloc::System;
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};
use symphony_scheduler::rivals::{Kairos, KairosSettings};
use symphony_scheduler::{
    Account, ClassProfiles, ClusterAction, ClusterActions, ClusterFacts, ClusterInput, ClusterModel, ClusterPolicy,
    Delays, GpuRanker, GrantWhy, MinTree, ModelAction, ModelActions, ModelInput, ModelQueue, ModelQueueConfig,
    POOL_TICK, Policy, PoolControl, PoolInput, RankAction, RankActions, RankInput, Request,
};
use symphony_types::{GpuClass, GpuId, LatencyProfile, Nanos, RequestId, RequestValue, Time};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MODELS: u32 = 20;
const GPUS: u32 = 8;
/// Grants that can be on their way at once.
const GRANTS_MAX: usize = GPUS as usize;
const SLO: Nanos = Nanos::from_millis(25);
const WARM_UP_REQUESTS: u64 = 200_000;
const COUNTED_REQUESTS: u64 = 50_000;

/// Queues and ranker around virtual time, in memory that is all there from the start.
struct Host {
    now: Time,
    queues: Vec<ModelQueue>,
    ranker: GpuRanker,
    pool: PoolControl,
    account_at: Time,
    shed: u64,
    /// Slot 0 wakes the ranker, slot 1 + m model m.
    timers: MinTree,
    actions: ModelActions,
    rank_actions: RankActions,
    grants: [Option<(u32, GpuId, GpuClass, Time)>; GRANTS_MAX],
    random: u64,
    sequence: u64,
    planned: u64,
    dropped: u64,
}

impl Host {
    /// The GPUs are of this many classes in turn, each a third slower than the previous one.
    fn new(policy: Policy, requests_max: usize, classes: usize) -> Self {
        let profile = |class: GpuClass| {
            let slower = 1.0 + class.index() as f64 / 3.0;
            (class, LatencyProfile::from_line(1.053 * slower, 5.072 * slower, 64).unwrap())
        };
        let profiles = GpuClass::all().take(classes).map(profile).collect();
        let delays = Delays { reply: Nanos::from_micros(100), guard: Nanos::from_micros(20), ..Delays::default() };
        let config = ModelQueueConfig { profiles, slo: SLO, policy, delays, requests_max };
        let mut host = Self {
            now: Time::ZERO,
            queues: (0..MODELS).map(|_| ModelQueue::new(config.clone())).collect(),
            ranker: GpuRanker::new(MODELS, GPUS),
            pool: PoolControl::default(),
            account_at: Time::ZERO,
            shed: 0,
            timers: MinTree::new(1 + MODELS as usize),
            actions: ModelActions::with_room(),
            rank_actions: RankActions::default(),
            grants: [None; GRANTS_MAX],
            random: 7,
            sequence: 0,
            planned: 0,
            dropped: 0,
        };
        for gpu in 0..GPUS {
            let class = GpuClass::new(gpu as usize % classes).unwrap();
            host.rank(RankInput::Add { gpu: GpuId::new(gpu), class, free_at: Time::ZERO });
        }
        host
    }

    /// A number in 0..`below` (xorshift).
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// `requests` requests at `rate` per second: bursts and pauses, a fifth of them with two to four items, a fifth
    /// with shorter deadlines (so that they do not join at the back), one in fifty withdrawn at once.
    fn serve(&mut self, requests: u64, rate: u64) {
        let mean_gap_ns = 1_000_000_000 / rate;
        for _ in 0..requests {
            let gap = if self.random(4) == 0 { self.random(8 * mean_gap_ns) } else { 0 };
            self.run_until(self.now + Nanos::new(gap));
            let model = self.random(u64::from(MODELS)) as usize;
            let items = if self.random(5) == 0 { 2 + self.random(3) as u32 } else { 1 };
            let deadline = self.now + if self.random(5) == 0 { Nanos::from_millis(15) } else { SLO };
            let id = RequestId { sequence: self.sequence, ..RequestId::default() };
            self.sequence += 1;
            self.model(
                model,
                ModelInput::Arrive(Request {
                    id,
                    deadline,
                    items,
                    weight: symphony_types::RequestValue::ONE,
                    variant: 0,
                }),
            );
            if self.random(50) == 0 {
                self.model(model, ModelInput::Cancel(id));
            }
            if self.now >= self.account_at {
                self.account();
            }
        }
    }

    fn account(&mut self) {
        self.account_at = self.now + POOL_TICK;
        let account = self.queues.iter_mut().map(ModelQueue::take_account).fold(Account::default(), Account::and);
        let (gpus_idle, gpus) = (self.ranker.gpus_idle(), self.ranker.gpus());
        if let Some(signal) = self.pool.step(self.now, PoolInput { account, gpus_idle, gpus, consolidate: false }) {
            for model in 0..MODELS as usize {
                self.model(model, ModelInput::Pool(signal));
            }
        }
    }

    fn run_until(&mut self, until: Time) {
        while let Some((slot, at)) = self.timers.min().filter(|&(_, at)| at <= until.as_nanos()) {
            self.now = self.now.max(Time::from_nanos(at));
            self.timers.set(slot, MinTree::EMPTY);
            match slot.checked_sub(1) {
                None => self.rank(RankInput::Wake),
                Some(model) => self.model(model, ModelInput::Wake),
            }
        }
        self.now = until;
    }

    fn model(&mut self, model: usize, input: ModelInput) {
        self.step(model, input);
        while let Some((model, gpu, class, free_at)) = self.grants.iter_mut().find_map(Option::take) {
            self.step(model as usize, ModelInput::Grant { gpu, class, free_at, why: GrantWhy::default() });
        }
    }

    /// Takes the orders out while it carries them out, as the runtime does.
    fn step(&mut self, model: usize, input: ModelInput) {
        let mut actions = std::mem::take(&mut self.actions);
        self.queues[model].step(self.now, input, &mut actions);
        for action in &actions.list {
            match *action {
                ModelAction::Offer { answered, class, candidate } => {
                    self.rank_step(RankInput::Offer { model: model as u32, answered, class, candidate });
                }
                ModelAction::Release { gpu, free_at } => {
                    self.rank_step(RankInput::Release { model: model as u32, gpu, free_at, report_due: false });
                }
                ModelAction::Execute(plan) => self.planned += u64::from(plan.requests),
                ModelAction::Drop { cause, .. } => {
                    self.dropped += 1;
                    self.shed += u64::from(cause.shed.is_some());
                }
                ModelAction::WakeAt(at) => self.timers.set(1 + model, at.as_nanos()),
            }
        }
        actions.clear();
        self.actions = actions;
    }

    fn rank(&mut self, input: RankInput) {
        self.rank_step(input);
        while let Some((model, gpu, class, free_at)) = self.grants.iter_mut().find_map(Option::take) {
            self.step(model as usize, ModelInput::Grant { gpu, class, free_at, why: GrantWhy::default() });
        }
    }

    fn rank_step(&mut self, input: RankInput) {
        self.rank_actions.clear();
        self.ranker.step(self.now, input, &mut self.rank_actions);
        for action in &self.rank_actions {
            match *action {
                RankAction::Grant { model, gpu, class, free_at, .. } => {
                    let room = self.grants.iter_mut().find(|slot| slot.is_none());
                    *room.expect("a GPU is granted once at a time") = Some((model, gpu, class, free_at));
                }
                RankAction::WakeAt(at) => self.timers.set(0, at.as_nanos()),
            }
        }
    }
}

/// A policy for a whole cluster, around virtual time.
struct ClusterHost<P> {
    now: Time,
    policy: P,
    actions: ClusterActions,
    /// The plans of each GPU: model, start and end.
    plans: [VecDeque<(u32, Time, Time)>; GPUS as usize],
    wake_at: Time,
    random: u64,
    sequence: u64,
    planned: u64,
    dropped: u64,
}

impl<P: ClusterPolicy> ClusterHost<P> {
    /// GPUs of three classes, each half as fast as the one before, and requests of up to 64 items.
    fn new(policy: P) -> Self {
        let mut host = Self {
            now: Time::ZERO,
            policy,
            actions: ClusterActions::with_room(),
            plans: [const { VecDeque::new() }; GPUS as usize],
            wake_at: Time::NEVER,
            random: 7,
            sequence: 0,
            planned: 0,
            dropped: 0,
        };
        host.plans.iter_mut().for_each(|plans| plans.reserve(4));
        let profile = |(class, slower): (GpuClass, f64)| {
            (class, LatencyProfile::from_line(0.2 * slower, 1.0 * slower, 64).unwrap())
        };
        for model in 0..MODELS {
            let profiles = GpuClass::all().zip([1.0, 2.0, 4.0]).map(profile).collect::<ClassProfiles>();
            let delays = Delays { control: Nanos::from_micros(100), ..Delays::default() };
            let known = Arc::new(ClusterModel::new(profiles, SLO).with_delays(delays));
            host.step(ClusterInput::Model { model, known });
        }
        for gpu in 0..GPUS {
            let class = GpuClass::new(gpu as usize % 3).unwrap();
            host.step(ClusterInput::GpuUp { gpu: GpuId::new(gpu), class, free_at: Time::ZERO });
        }
        host
    }

    /// A number in 0..`below` (xorshift).
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn serve(&mut self, requests: u64, rate: u64) {
        for _ in 0..requests {
            let gap = self.random(2 * 1_000_000_000 / rate);
            self.run_until(self.now + Nanos::new(gap));
            let (model, items) = (self.random(u64::from(MODELS)) as u32, 1 + self.random(64) as u32);
            let id = RequestId { sequence: self.sequence, ..RequestId::default() };
            self.sequence += 1;
            let request = Request { id, deadline: self.now + SLO, items, weight: RequestValue::ONE, variant: 0 };
            self.step(ClusterInput::Arrive { model, request });
            if self.random(50) == 0 {
                self.step(ClusterInput::Cancel { model, request });
            }
        }
    }

    fn run_until(&mut self, until: Time) {
        loop {
            let ends = self.plans.iter().enumerate().filter_map(|(gpu, plans)| Some((plans.front()?.2, gpu)));
            let next = ends.min();
            let at = next.map_or(Time::NEVER, |(end, _)| end).min(self.wake_at);
            if at > until || at == Time::NEVER {
                self.now = until;
                return;
            }
            self.now = self.now.max(at);
            match next {
                Some((end, gpu)) if end == at => {
                    let Some((model, start, end)) = self.plans[gpu].pop_front() else { return };
                    let (gpu, latency) = (GpuId::new(gpu as u32), end.since(start));
                    self.step(ClusterInput::Done { gpu, model, start, start_late: Nanos::ZERO, latency });
                }
                _ => {
                    self.wake_at = Time::NEVER;
                    self.step(ClusterInput::Wake);
                }
            }
        }
    }

    fn step(&mut self, input: ClusterInput) {
        self.actions.clear();
        self.policy.step(self.now, input, &mut self.actions);
        for action in &self.actions.list {
            match *action {
                ClusterAction::Execute { model, plan } => {
                    self.plans[plan.gpu.get() as usize].push_back((model, plan.start, plan.end));
                    self.planned += 1;
                }
                ClusterAction::Drop { .. } => self.dropped += 1,
                ClusterAction::WakeAt(at) => self.wake_at = at,
                ClusterAction::Preempt(_) => {}
            }
        }
    }
}

/// What the whole process asked of the heap while `work` ran.
fn heap_use(work: impl FnOnce()) -> Stats {
    let region = Region::new(GLOBAL);
    work();
    region.change()
}

#[test]
fn a_decision_allocates_nothing_after_the_warm_up() {
    // Phase 1: the counter counts. A planted allocation, growth included, must be seen, or the rest proves nothing.
    let planted = heap_use(|| {
        let mut grows = vec![1_u64; 1];
        grows.push(2);
        black_box(&grows);
    });
    assert_eq!((planted.allocations, planted.reallocations, planted.deallocations), (1, 1, 1), "{planted:?}");

    // Phase 2: every policy that a model can be loaded with, below capacity, and at three times capacity, where most
    // requests are dropped and queues run into their limit. Eight GPUs serve some 5000 requests of one item per second,
    // fewer of twenty models.
    for name in ["symphony", "auto", "eager", "timeout", "clipper"] {
        let policy = Policy::of(&name.parse().expect(name), SLO, RequestValue::ONE);
        let loads = [(1_500, 1 << 20), (15_000, 1 << 20), (15_000, 12)];
        for ((rate, requests_max), classes) in loads.into_iter().flat_map(|load| [(load, 1), (load, 3)]) {
            let mut host = Host::new(policy, requests_max, classes);
            // The warm-up sees worse than what is counted, as queues of a process that runs for days have.
            host.serve(WARM_UP_REQUESTS / 2, rate * 2);
            host.serve(WARM_UP_REQUESTS / 2, rate);
            let (planned, dropped, shed) = (host.planned, host.dropped, host.shed);
            let used = heap_use(|| host.serve(COUNTED_REQUESTS, rate));
            let (planned, dropped, shed) = (host.planned - planned, host.dropped - dropped, host.shed - shed);
            let at = format!(
                "{name} at {rate} r/s on {classes} classes of GPUs, {planned} planned, {dropped} dropped: {used:?}"
            );
            assert_eq!((used.allocations, used.reallocations, used.deallocations), (0, 0, 0), "{at}");
            assert!(planned > COUNTED_REQUESTS / 20, "little was scheduled: {at}");
            assert!(rate < 10_000 || dropped > COUNTED_REQUESTS / 10, "little was dropped: {at}");
            // Bursts may press the slower classes at low rates too.
            assert!(shed > 0 || name != "auto" || rate < 10_000, "nothing was shed: {at}");
            assert!(shed == 0 || name == "auto", "{shed} were shed: {at}");
        }
    }

    // Phase 3: matching, below and at three times capacity.
    for (learn, rate) in [(false, 200), (false, 2_000), (true, 200), (true, 2_000)] {
        let mut host = ClusterHost::new(Kairos::new(&ClusterFacts::default(), KairosSettings { learn }));
        host.serve(WARM_UP_REQUESTS / 8, rate * 2);
        host.serve(WARM_UP_REQUESTS / 8, rate);
        let (planned, dropped) = (host.planned, host.dropped);
        let used = heap_use(|| host.serve(COUNTED_REQUESTS / 4, rate));
        let (planned, dropped) = (host.planned - planned, host.dropped - dropped);
        let at = format!("kairos, learn: {learn}, at {rate} r/s, {planned} planned, {dropped} dropped: {used:?}");
        assert_eq!((used.allocations, used.reallocations, used.deallocations), (0, 0, 0), "{at}");
        assert!(planned > COUNTED_REQUESTS / 40, "little was scheduled: {at}");
        assert!(rate < 1_000 || dropped > COUNTED_REQUESTS / 40, "little was dropped: {at}");
    }
}
