//! Queues and a ranker under random inputs, with every message between them delayed at will: whatever the order, the
//! invariants hold, no request is lost, and the wake-ups asked for are enough to end every request.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use symphony_scheduler::{
    BatchLimit, Candidate, ClassProfiles, DataDelay, DelaySource, Delays, DropRule, EarlyStart, GpuChoice, GpuRanker,
    GrantWhy, ModelAction, ModelActions, ModelInput, ModelQueue, ModelQueueConfig, Overrun, PlanCheck, Policy,
    PoolSignal, Pressure, RankAction, RankInput, ReadyOrder, Request, Shed, Trigger,
};
use symphony_types::{
    BootId, DropReason, FrontendId, GpuClass, GpuId, LatencyProfile, Nanos, RequestId, RequestValue, Time,
};

const MODELS: u32 = 3;
const GPUS: u32 = 3;
/// Classes of GPUs that may come up.
const CLASSES: usize = 3;
const CLASS_BATCH_MAX: [u32; CLASSES] = [8, 3, 16];
const REQUESTS_MAX: usize = 12;
/// Rounds of messages without time passing: far more than there are GPUs and models to talk about.
const ROUNDS_MAX: usize = 500;
/// Later than any deadline that is meant.
const END_OF_TIME: Time = Time::from_nanos(u64::MAX / 2);

#[derive(Clone, Copy, Debug)]
enum Op {
    Pass {
        nanos: u64,
    },
    Arrive {
        model: u32,
        items: u32,
        budget: u64,
        frontend: u32,
        /// It was here before.
        again: bool,
    },
    Cancel {
        model: u32,
        nth: usize,
    },
    Withdraw {
        frontend: u32,
    },
    Press {
        model: u32,
        millionths: u32,
        early_start: u32,
    },
    DeliverOffer {
        model: u32,
        class: usize,
    },
    DeliverGrant {
        model: u32,
    },
    DeliverRelease,
    Ring,
    Remove {
        gpu: u32,
    },
    Report {
        gpu: u32,
        after: u64,
    },
    /// The GPU is another one now.
    Replace {
        gpu: u32,
        class: usize,
    },
    /// A model hears only now of classes that came or went.
    Follow {
        model: u32,
    },
}

/// Grants answered, and the candidate.
type Offer = (u64, Option<Candidate>);

struct Host {
    now: Time,
    queues: Vec<ModelQueue>,
    ranker: GpuRanker,
    queue_wakes: Vec<Time>,
    rank_wake: Time,
    /// By model and class.
    offers: Vec<[Option<Offer>; CLASSES]>,
    grants: Vec<VecDeque<(GpuId, GpuClass, Time)>>,
    releases: VecDeque<(u32, GpuId, Time)>,
    /// Requests in each queue, as they should be.
    queued: Vec<BTreeMap<RequestId, Request>>,
    arrived: u64,
    ended: u64,
    /// GPUs out with a model.
    out: Vec<bool>,
    gone: Vec<bool>,
    classes: Vec<GpuClass>,
    profiles: ClassProfiles,
    delays: Delays,
    check: PlanCheck,
}

fn class(index: usize) -> GpuClass {
    GpuClass::new(index).unwrap()
}

impl Host {
    fn new(policies: &[Policy], delays: Delays, lines: &[(f64, f64)]) -> Self {
        let profile = |(at, &(alpha, beta)): (usize, &(f64, f64))| {
            (class(at), LatencyProfile::from_line(alpha, beta, CLASS_BATCH_MAX[at]).unwrap())
        };
        let profiles: ClassProfiles = lines.iter().enumerate().map(profile).collect();
        let queue = |&policy: &Policy| {
            let (profiles, slo) = (profiles.clone(), Nanos::from_millis(40));
            ModelQueue::new(ModelQueueConfig { profiles, slo, policy, delays, requests_max: REQUESTS_MAX })
        };
        let models = MODELS as usize;
        let mut host = Self {
            now: Time::from_nanos(3_600_000_000_000),
            queues: policies.iter().map(queue).collect(),
            ranker: GpuRanker::new(0, 0),
            queue_wakes: vec![Time::NEVER; models],
            rank_wake: Time::NEVER,
            offers: vec![[None; CLASSES]; models],
            grants: vec![VecDeque::new(); models],
            releases: VecDeque::new(),
            queued: vec![BTreeMap::new(); models],
            arrived: 0,
            ended: 0,
            out: vec![false; GPUS as usize],
            gone: vec![false; GPUS as usize],
            classes: (0..GPUS as usize).map(|gpu| class(gpu % lines.len())).collect(),
            profiles,
            delays,
            check: PlanCheck::new(GPUS),
        };
        for gpu in 0..GPUS {
            let class = host.classes[gpu as usize];
            host.rank(RankInput::Add { gpu: GpuId::new(gpu), class, free_at: Time::ZERO });
        }
        host
    }

    /// The classes there are, as far as there are profiles for them.
    fn follow(&mut self, model: u32) {
        let classes = self.classes.iter().copied().collect();
        self.queue(model, ModelInput::Classes(classes));
    }

    fn queue(&mut self, model: u32, input: ModelInput) {
        let slot = model as usize;
        let mut actions = ModelActions::default();
        self.queues[slot].step(self.now, input, &mut actions);
        let mut releases = Vec::new();
        for action in &actions.list {
            match action {
                ModelAction::Offer { answered, class, candidate } => {
                    self.offers[slot][class.index()] = Some((*answered, *candidate));
                }
                ModelAction::Execute(plan) => {
                    self.check.check(self.now, plan).unwrap_or_else(|violation| panic!("{violation}"));
                    // S2 by the GPU's own profile, whatever the queue took it for.
                    let profile = self.profiles.get(self.classes[plan.gpu.get() as usize]).unwrap();
                    assert_eq!(plan.end, plan.start + profile.latency(plan.batch), "S2: another profile");
                    let delays = Delays { data: self.queues[slot].data_delay(), ..self.delays };
                    assert!(plan.start >= self.now + delays.lead(plan.batch), "S2: it cannot be there in time");
                    let requests = actions.requests_of(plan);
                    assert_eq!(requests.iter().map(|r| r.items).sum::<u32>(), plan.batch);
                    for request in requests {
                        assert!(self.queued[slot].remove(&request.id).is_some(), "planned and not queued: {request:?}");
                        self.ended += 1;
                    }
                }
                ModelAction::Release { gpu, free_at } => releases.push((model, *gpu, *free_at)),
                ModelAction::Drop { request, reason, cause } => {
                    if *reason == DropReason::ProtectBatch {
                        let at_best = (cause.batch_end, cause.must_end_by);
                        assert!(at_best.0 > at_best.1, "a batch worth protecting would have met it: {cause:?}");
                    }
                    assert!(self.queued[slot].remove(&request.id).is_some(), "dropped and not queued: {request:?}");
                    self.ended += 1;
                }
                ModelAction::WakeAt(time) => self.queue_wakes[slot] = *time,
            }
        }
        // S4: a grant is answered once, and nothing else is.
        let granted = match input {
            ModelInput::Grant { gpu, .. } => vec![gpu],
            _ => vec![],
        };
        assert_eq!(releases.iter().map(|r| r.1).collect::<Vec<_>>(), granted, "S4");
        self.releases.extend(releases);
        assert!(self.queues[slot].len() <= REQUESTS_MAX, "S5");
        assert_eq!(self.queues[slot].len(), self.queued[slot].len(), "a request is lost or counted twice");
    }

    fn rank(&mut self, input: RankInput) {
        let mut actions = Vec::new();
        self.ranker.step(self.now, input, &mut actions);
        for action in actions {
            match action {
                RankAction::Grant { model, gpu, class, free_at, .. } => {
                    assert_eq!(class, self.classes[gpu.get() as usize], "{gpu} is of another class");
                    let out = &mut self.out[gpu.get() as usize];
                    assert!(!std::mem::replace(out, true), "S1: {gpu} is granted twice");
                    self.grants[model as usize].push_back((gpu, class, free_at));
                }
                RankAction::WakeAt(time) => self.rank_wake = time,
            }
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Pass { nanos } => self.now += Nanos::new(nanos),
            Op::Arrive { model, items, budget, frontend, again } => {
                self.arrived += 1;
                let frontend = FrontendId::new(frontend);
                let id = RequestId { frontend, boot: BootId::new(1), sequence: self.arrived };
                let request = Request {
                    id,
                    deadline: self.now + Nanos::new(budget),
                    items,
                    weight: symphony_types::RequestValue::ONE,
                    variant: 0,
                };
                self.queued[model as usize].insert(id, request);
                self.queue(model, if again { ModelInput::Return(request) } else { ModelInput::Arrive(request) });
            }
            Op::Cancel { model, nth } => {
                let Some(&id) = self.queued[model as usize].keys().nth(nth) else { return };
                self.queued[model as usize].remove(&id);
                self.ended += 1;
                self.queue(model, ModelInput::Cancel(id));
            }
            Op::Withdraw { frontend } => {
                let frontend = FrontendId::new(frontend);
                for model in 0..MODELS {
                    let queued = &mut self.queued[model as usize];
                    let before = queued.len();
                    queued.retain(|id, _| id.frontend != frontend);
                    self.ended += (before - queued.len()) as u64;
                    self.queue(model, ModelInput::Withdraw { frontend, boot: BootId::new(1) });
                }
            }
            Op::Press { model, millionths, early_start } => {
                let pressure = Pressure::from_millionths(millionths);
                // Any numbers will do for the rest.
                let overrun = Overrun::from_thousandths(millionths / 1000);
                let early_start = EarlyStart::from_millionths(early_start);
                self.queue(
                    model,
                    ModelInput::Pool(PoolSignal {
                        pressure,
                        early_start,
                        overrun,
                        gpus: symphony_scheduler::GpuCounts([millionths % 100; symphony_types::GPU_CLASSES_MAX]),
                    }),
                );
            }
            Op::DeliverOffer { model, class: at } => {
                if let Some((answered, candidate)) = self.offers[model as usize][at].take() {
                    self.rank(RankInput::Offer { model, answered, class: class(at), candidate });
                }
            }
            Op::DeliverGrant { model } => {
                if let Some((gpu, class, free_at)) = self.grants[model as usize].pop_front() {
                    self.queue(model, ModelInput::Grant { gpu, class, free_at, why: GrantWhy::default() });
                }
            }
            Op::DeliverRelease => {
                if let Some((model, gpu, free_at)) = self.releases.pop_front() {
                    self.out[gpu.get() as usize] = false;
                    self.rank(RankInput::Release { model, gpu, free_at, report_due: false });
                }
            }
            Op::Ring => self.ring(),
            Op::Remove { gpu } => {
                // A GPU that is out comes back before it may go and come: telling the two apart is the host's work.
                if !self.out[gpu as usize] {
                    self.gone[gpu as usize] = true;
                    self.rank(RankInput::Remove(GpuId::new(gpu)));
                }
            }
            Op::Report { gpu, after } => {
                // Only a report of the newest plan is passed on, and it speaks of now or later.
                if !self.out[gpu as usize] {
                    self.gone[gpu as usize] = false;
                    let (gpu, free_at) = (GpuId::new(gpu), self.now + Nanos::new(after));
                    self.check.busy_until(gpu, free_at);
                    self.rank(RankInput::BusyUntil { gpu, free_at, report_due: false });
                }
            }
            Op::Replace { gpu, class: at } => {
                // A class without a profile is one that no model can be served with, and no such GPU is let in.
                if !self.out[gpu as usize] && self.profiles.get(class(at)).is_some() {
                    self.gone[gpu as usize] = false;
                    self.classes[gpu as usize] = class(at);
                    let (gpu, free_at) = (GpuId::new(gpu), self.now);
                    self.check.busy_until(gpu, free_at);
                    self.rank(RankInput::Add { gpu, class: class(at), free_at });
                }
            }
            Op::Follow { model } => self.follow(model),
        }
    }

    fn ring(&mut self) {
        for model in 0..MODELS {
            if self.queue_wakes[model as usize] <= self.now {
                self.queue_wakes[model as usize] = Time::NEVER;
                self.queue(model, ModelInput::Wake);
            }
        }
        if self.rank_wake <= self.now {
            self.rank_wake = Time::NEVER;
            self.rank(RankInput::Wake);
        }
    }

    fn has_work(&self) -> bool {
        self.offers.iter().flatten().any(Option::is_some)
            || self.grants.iter().any(|grants| !grants.is_empty())
            || !self.releases.is_empty()
            || self.queue_wakes.iter().any(|&wake| wake <= self.now)
            || self.rank_wake <= self.now
    }

    /// Delivers everything and follows the wake-ups, nothing else.
    fn drain(&mut self) {
        loop {
            let mut rounds = 0;
            while self.has_work() {
                for model in 0..MODELS {
                    (0..CLASSES).for_each(|class| self.apply(Op::DeliverOffer { model, class }));
                    self.apply(Op::DeliverGrant { model });
                }
                self.apply(Op::DeliverRelease);
                self.ring();
                rounds += 1;
                assert!(rounds < ROUNDS_MAX, "queues and ranker talk without end at {}", self.now);
            }
            let next = self.queue_wakes.iter().copied().min().unwrap().min(self.rank_wake);
            if next == Time::NEVER {
                return;
            }
            self.now = self.now.max(next);
        }
    }
}

fn budget() -> impl Strategy<Value = u64> {
    prop_oneof![
        10 => 0..60_000_000_u64,
        1 => Just(0),
        1 => Just(u64::MAX),
        1 => any::<u64>(),
    ]
}

fn items() -> impl Strategy<Value = u32> {
    prop_oneof![8 => Just(1_u32), 4 => 2..8_u32, 1 => 8..20_u32, 1 => Just(0), 1 => Just(u32::MAX)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..5_000_000_u64).prop_map(|nanos| Op::Pass { nanos }),
        6 => (0..MODELS, items(), budget(), 0..2_u32, proptest::bool::weighted(0.2))
            .prop_map(|(model, items, budget, frontend, again)| Op::Arrive { model, items, budget, frontend, again }),
        1 => (0..MODELS, 0..REQUESTS_MAX).prop_map(|(model, nth)| Op::Cancel { model, nth }),
        1 => (0..2_u32).prop_map(|frontend| Op::Withdraw { frontend }),
        1 => (0..MODELS, prop_oneof![Just(0), 1..3_000_000_u32, any::<u32>()], 0..1_200_000_u32)
            .prop_map(|(model, millionths, early_start)| Op::Press { model, millionths, early_start }),
        4 => (0..MODELS, 0..CLASSES).prop_map(|(model, class)| Op::DeliverOffer { model, class }),
        4 => (0..MODELS).prop_map(|model| Op::DeliverGrant { model }),
        4 => Just(Op::DeliverRelease),
        3 => Just(Op::Ring),
        1 => (0..GPUS).prop_map(|gpu| Op::Remove { gpu }),
        2 => (0..GPUS, 0..30_000_000_u64).prop_map(|(gpu, after)| Op::Report { gpu, after }),
        1 => (0..GPUS, 0..CLASSES).prop_map(|(gpu, class)| Op::Replace { gpu, class }),
        1 => (0..MODELS).prop_map(|model| Op::Follow { model }),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let trigger = prop_oneof![
        Just(Trigger::Eager),
        Just(Trigger::Frontrun),
        Just(Trigger::Latest),
        Just(Trigger::Adaptive),
        Just(Trigger::BetaLambda),
        Just(Trigger::Timeout(Nanos::from_millis(3))),
    ];
    let drop = prop_oneof![Just(DropRule::default()), Just(DropRule::Prune)];
    let limit = prop_oneof![Just(BatchLimit::None), Just(BatchLimit::Aimd)];
    let value = |number| Shed::Proportional(RequestValue::from_number(number).unwrap());
    let shed = prop_oneof![Just(Shed::None), Just(value(1.0)), Just(value(4.0)), Just(value(0.001))];
    (trigger, drop, limit, shed).prop_map(|(trigger, drop, limit, shed)| Policy {
        trigger,
        drop,
        limit,
        shed,
        ..Policy::SYMPHONY
    })
}

/// What a policy has the ranker do, by model.
fn rankings() -> impl Strategy<Value = Vec<(ReadyOrder, GpuChoice)>> {
    let order = prop_oneof![
        Just(ReadyOrder::Latest),
        Just(ReadyOrder::Frontrun),
        Just(ReadyOrder::Start),
        Just(ReadyOrder::Deadline),
    ];
    let choice = prop_oneof![Just(GpuChoice::LowestId), Just(GpuChoice::EarliestFree)];
    proptest::collection::vec((order, choice), MODELS as usize)
}

/// α and β by class: one that is the faster for small batches and the slower for large ones, one that is slower
/// throughout, and one so slow that few requests can wait for it.
fn lines() -> impl Strategy<Value = Vec<(f64, f64)>> {
    let line = prop_oneof![Just((1.0, 5.0)), Just((2.0, 3.0)), Just((3.0, 12.0)), Just((0.5, 30.0))];
    prop_oneof![Just(vec![(1.0, 5.0)]), proptest::collection::vec(line, 2..=CLASSES)]
}

fn delays() -> impl Strategy<Value = Delays> {
    let micros = || (0..3_000_u64).prop_map(Nanos::from_micros);
    prop_oneof![
        Just(Delays::default()),
        (micros(), (micros(), micros(), micros()), micros(), micros()).prop_map(|(control, data, reply, guard)| {
            let (fixed, per_item, over) = data;
            let data = DataDelay { fixed, per_item, max: fixed + over, source: DelaySource::Measured };
            Delays { control, data, reply, guard }
        }),
        Just(Delays {
            control: Nanos::MAX,
            data: DataDelay { fixed: Nanos::MAX, ..DataDelay::each_item(Nanos::MAX) },
            reply: Nanos::MAX,
            guard: Nanos::MAX
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_order_every_request_ends_once(
        policy in policy(),
        delays in delays(),
        rankings in rankings(),
        lines in lines(),
        ops in proptest::collection::vec(op(), 0..120),
    ) {
        let of_model = |&(ready_order, gpu_choice): &_| Policy { ready_order, gpu_choice, ..policy };
        let policies: Vec<_> = rankings.iter().map(of_model).collect();
        let mut host = Host::new(&policies, delays, &lines);
        for op in ops {
            host.apply(op);
        }
        host.drain();
        for (model, queued) in host.queued.iter().enumerate() {
            prop_assert!(queued.is_empty(), "model {model} never ends {queued:?}");
        }
        prop_assert_eq!(host.arrived, host.ended);
        // S4 over everything: each GPU that was not removed is the ranker's again, but for plans at the end of time.
        for gpu in (0..GPUS).filter(|_| host.now < END_OF_TIME) {
            let usable = host.ranker.free_at(GpuId::new(gpu)) != Time::NEVER;
            prop_assert_eq!(usable, !host.gone[gpu as usize], "gpu {}", gpu);
        }
    }
}

/// A model that takes the place of another one answers its own grants only.
#[test]
fn a_new_model_in_a_former_models_place_gets_gpus() {
    let mut ranker = GpuRanker::new(1, 1);
    let mut actions = Vec::new();
    let now = Time::from_nanos(1_000_000_000);
    let (frontrun, must_end_by, lead) = (now, now, Nanos::ZERO);
    let candidate =
        Candidate { batch: 1, start: now, latest: now, frontrun, must_end_by, lead, ..Candidate::default() };
    let gpu = GpuId::new(0);
    ranker.step(now, RankInput::BusyUntil { gpu, free_at: now, report_due: false }, &mut actions);
    for answered in 0..3 {
        ranker.step(
            now,
            RankInput::Offer { model: 0, answered, class: GpuClass::FIRST, candidate: Some(candidate) },
            &mut actions,
        );
        ranker.step(now, RankInput::Release { model: 0, gpu, free_at: now, report_due: false }, &mut actions);
    }
    ranker.step(now, RankInput::Forget(0), &mut actions);
    actions.clear();
    ranker.step(
        now,
        RankInput::Offer { model: 0, answered: 0, class: GpuClass::FIRST, candidate: Some(candidate) },
        &mut actions,
    );
    let granted = |action: &RankAction| matches!(*action, RankAction::Grant { model: 0, gpu: to, free_at, .. } if (to, free_at) == (gpu, now));
    assert!(actions.iter().any(granted), "{actions:?}");
}
