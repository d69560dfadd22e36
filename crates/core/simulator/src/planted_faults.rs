//! Each invariant that the simulator checks is violated on purpose through the tap, and must end the run under its
//! name.

use symphony_scheduler::{
    ClusterActions, ClusterInput, ClusterPolicy, ModelAction, ModelActions, ModelInput, Plan, Request,
};
use symphony_types::{BootId, FrontendId, GpuId, Invariant, Nanos, RequestId, Time};
use symphony_workload::{Scenario, Trace, TraceRow};

use crate::error::Error;
use crate::hosted::Hosted;
use crate::open_requests::OpenRequest;
use crate::policy_facts::PolicyFacts;
use crate::queues_and_ranker::QueuesAndRanker;
use crate::tap::{Open, Tap};
use crate::world::World;

const SEED: u64 = 9;

impl<F: FnMut(Time, &ModelInput, &mut ModelActions)> Tap for F {
    fn model_step(&mut self, now: Time, input: &ModelInput, actions: &mut ModelActions) {
        self(now, input, actions);
    }
}

/// Two models on two GPUs, overloaded, so that the GPUs run batches back to back.
fn scenario() -> Scenario {
    let text = "
        name = 'planted'
        policy = 'eager'
        duration_s = 1
        warmup_s = 0.1
        seeds = [9]
        network = { ctrl_us = 100, data_us_per_item = 10, reply_us = 50 }
        gpu = [{ kind = 'x', count = 2 }]
        model = [{ name = 'm', count = 2, alpha_ms = 1, beta_ms = 5, slo_ms = 25 }]
        workload = { rate_rps = 2000, arrival = 'poisson' }";
    Scenario::parse("planted.toml", text, &[], &|_| Err("no files".to_owned())).unwrap()
}

fn run(fault: impl Tap) -> Result<(), Error> {
    run_in(&scenario(), fault)
}

fn run_in(scenario: &Scenario, fault: impl Tap) -> Result<(), Error> {
    let queues = scenario.policy.queues().expect("the policy is made of queues");
    let facts = PolicyFacts::new(scenario, SEED, scenario.rate_rps);
    World::new(scenario, SEED, scenario.rate_rps, QueuesAndRanker::new(&facts, queues, fault)).run()
}

/// Runs with a fault that changes every plan, and expects it to be reported as this invariant.
#[track_caller]
fn found(invariant: Invariant, words: &str, fault: impl Tap) {
    let error = run(fault).expect_err("the fault should be found");
    let Error::Violation { violation, seed, command, .. } = &error else { panic!("another error: {error}") };
    assert_eq!((violation.invariant, *seed), (invariant, SEED), "{error}");
    assert!(violation.detail.contains(words), "`{words}` is not in: {error}");
    assert_eq!(command, "symphony sim planted.toml --set 'seeds=[9]' --set workload.rate_rps=2000.0");
}

fn on_plans(mut change: impl FnMut(&mut Plan)) -> impl Tap {
    move |_: Time, _: &ModelInput, actions: &mut ModelActions| {
        for action in &mut actions.list {
            if let ModelAction::Execute(plan) = action {
                change(plan);
            }
        }
    }
}

fn first_plan(actions: &ModelActions) -> Option<Plan> {
    actions.list.iter().find_map(|action| if let ModelAction::Execute(plan) = action { Some(*plan) } else { None })
}

#[test]
fn without_a_fault_the_run_ends_well() {
    run(Open).unwrap();
}

#[test]
fn s1_two_plans_that_overlap() {
    let mut ends = [Time::ZERO; 2];
    found(Invariant::S1, "is busy until", move |_: Time, _: &ModelInput, actions: &mut ModelActions| {
        let mut moved = None;
        for action in &mut actions.list {
            match action {
                ModelAction::Execute(plan) => {
                    let end = &mut ends[plan.gpu.get() as usize];
                    if plan.start == *end {
                        plan.start = plan.start - Nanos::new(1);
                        plan.end = plan.end - Nanos::new(1);
                        moved = Some(plan.end);
                    }
                    *end = plan.end;
                }
                ModelAction::Release { free_at, .. } => *free_at = moved.take().unwrap_or(*free_at),
                _ => {}
            }
        }
    });
}

#[test]
fn s2_a_plan_that_misses_its_deadline() {
    found(Invariant::S2, "must end by", on_plans(|plan| plan.must_end_by = plan.end - Nanos::new(1)));
}

#[test]
fn s2_a_plan_whose_deadline_is_not_that_of_its_requests() {
    found(Invariant::S2, "is due at", |_: Time, _: &ModelInput, actions: &mut ModelActions| {
        for request in &mut actions.planned {
            request.deadline = request.deadline - Nanos::from_millis(25);
        }
    });
}

#[test]
fn s2_a_plan_that_starts_before_it_can_arrive_or_lasts_another_time_than_its_profile() {
    found(Invariant::S2, "reaches its GPU at", |now: Time, _: &ModelInput, actions: &mut ModelActions| {
        let mut end = None;
        for action in &mut actions.list {
            match action {
                ModelAction::Execute(plan) => {
                    let early = plan.start.since(now);
                    plan.start = now;
                    plan.end = plan.end - early;
                    end = Some(plan.end);
                }
                ModelAction::Release { free_at, .. } => *free_at = end.unwrap_or(*free_at),
                _ => {}
            }
        }
    });
    found(Invariant::S2, "and takes", on_plans(|plan| plan.start += Nanos::new(1)));
}

/// GPU 0 as in the other tests, GPU 1 half as fast.
fn two_kinds() -> Scenario {
    let text = "
        name = 'planted'
        policy = 'eager'
        duration_s = 1
        warmup_s = 0.1
        seeds = [9]
        gpu = [{ kind = 'x', count = 1 }, { kind = 'y', count = 1 }]
        model = [{ name = 'm', alpha_ms = { x = 1, y = 2 }, beta_ms = { x = 5, y = 10 }, slo_ms = 40 }]
        workload = { rate_rps = 1000, arrival = 'poisson' }";
    Scenario::parse("planted.toml", text, &[], &|_| Err("no files".to_owned())).unwrap()
}

#[test]
fn s2_a_plan_by_the_profile_of_another_kind_than_its_gpus() {
    let scenario = two_kinds();
    run_in(&scenario, Open).expect("each by its own profile");
    for judged in [0, 1] {
        let other = scenario.models[0].profiles[1 - judged].clone();
        let error = run_in(&scenario, move |_: Time, _: &ModelInput, actions: &mut ModelActions| {
            let mut end = None;
            for action in &mut actions.list {
                match action {
                    ModelAction::Execute(plan) if plan.gpu.get() as usize == judged => {
                        plan.end = plan.start + other.latency(plan.batch);
                        plan.must_end_by = plan.must_end_by.max(plan.end);
                        end = Some(plan.end);
                    }
                    ModelAction::Release { free_at, .. } => *free_at = end.unwrap_or(*free_at),
                    _ => {}
                }
            }
        });
        let Err(Error::Violation { violation, .. }) = error else { panic!("not found: {error:?}") };
        assert_eq!(violation.invariant, Invariant::S2, "{violation}");
        assert!(violation.detail.contains("and takes"), "{violation}");
    }
}

/// Overloaded, so that plans have several rows of some variants, and none of others.
fn family() -> Scenario {
    let text = "
        name = 'planted'
        policy = 'eager'
        duration_s = 1
        warmup_s = 0.1
        seeds = [9]
        gpu = [{ kind = 'x', count = 1 }]
        workload = { rate_rps = 1000, arrival = 'poisson' }
        [[model]]
        name = 'm'
        alpha_ms = 1
        beta_ms = 5
        slo_ms = 50
        variants = { count = 40, suffix_alpha_ms = 0.1, suffix_beta_ms = 0.5 }";
    Scenario::parse("planted.toml", text, &[], &|_| Err("no files".to_owned())).unwrap()
}

#[test]
fn s2_a_familys_plan_by_the_worst_composition_or_with_another_variant() {
    let scenario = family();
    run_in(&scenario, Open).expect("each plan by its own variants");
    let worst = scenario.models[0].profiles[0].clone();
    let by_the_worst = run_in(&scenario, move |_: Time, _: &ModelInput, actions: &mut ModelActions| {
        let mut end = None;
        for action in &mut actions.list {
            match action {
                ModelAction::Execute(plan) => {
                    plan.end = plan.start + worst.latency(plan.batch);
                    end = Some(plan.end);
                }
                ModelAction::Release { free_at, .. } => *free_at = end.unwrap_or(*free_at),
                _ => {}
            }
        }
    });
    let another = run_in(&scenario, |_: Time, _: &ModelInput, actions: &mut ModelActions| {
        // All of them change alike, so that the composition is that of as many variants.
        if first_plan(actions).is_some() {
            actions.planned.iter_mut().for_each(|request| request.variant ^= 1);
        }
    });
    for (result, words) in [(by_the_worst, "and takes"), (another, "of variant")] {
        let Err(Error::Violation { violation, .. }) = result else { panic!("not found: {result:?}") };
        assert_eq!(violation.invariant, Invariant::S2, "{violation}");
        assert!(violation.detail.contains(words), "{violation}");
    }
}

#[test]
fn s3_a_request_that_is_decided_twice_or_by_a_stranger() {
    found(Invariant::S3, "not open or not its own", |_: Time, _: &ModelInput, actions: &mut ModelActions| {
        if let Some(plan) = first_plan(actions) {
            let request = actions.requests_of(&plan)[0];
            let reason = symphony_types::DropReason::ProtectBatch;
            let cause = symphony_scheduler::DropCause {
                class: symphony_types::GpuClass::FIRST,
                arrived: Time::ZERO,
                must_end_by: plan.must_end_by,
                batch: 1,
                target: 1,
                batch_end: plan.end,
                alone_end: plan.end,
                waiting: 1,
                shed: None,
            };
            actions.list.push(ModelAction::Drop { request, reason, cause });
        }
    });
    found(Invariant::S3, "not open or not its own", |_: Time, _: &ModelInput, actions: &mut ModelActions| {
        for request in &mut actions.planned {
            request.id = RequestId { sequence: request.id.sequence + 1_000_000, ..request.id };
        }
    });
}

#[test]
fn s4_a_grant_that_is_kept_and_a_gpu_that_nobody_gave() {
    found(Invariant::S4, "expected one release", |_: Time, _: &ModelInput, actions: &mut ModelActions| {
        actions.list.retain(|action| !matches!(action, ModelAction::Release { .. }));
    });
    found(Invariant::S4, "at the plan's end", |_: Time, _: &ModelInput, actions: &mut ModelActions| {
        let used = first_plan(actions).is_some();
        for action in &mut actions.list {
            if let ModelAction::Release { free_at, .. } = action
                && used
            {
                *free_at = *free_at - Nanos::new(1);
            }
        }
    });
    found(Invariant::S4, "without a grant", |now: Time, input: &ModelInput, actions: &mut ModelActions| {
        if matches!(input, ModelInput::Arrive(_)) {
            actions.list.push(ModelAction::Release { gpu: GpuId::new(0), free_at: now });
        }
    });
}

#[test]
fn s5_a_batch_that_does_not_hold_what_it_says() {
    found(Invariant::S5, "items", on_plans(|plan| plan.requests -= 1));
}

#[test]
fn s3_a_drop_that_is_never_reported() {
    found(Invariant::S3, "neither an outcome nor a plan", |_: Time, _: &ModelInput, actions: &mut ModelActions| {
        actions.list.retain(|action| !matches!(action, ModelAction::Drop { .. }));
    });
}

/// A policy that keeps its requests and does nothing with them.
#[derive(Default)]
struct Sleeper {
    kept: Vec<Request>,
}

impl ClusterPolicy for Sleeper {
    fn step(&mut self, _: Time, input: ClusterInput, _: &mut ClusterActions) {
        if let ClusterInput::Arrive { request, .. } = input {
            self.kept.push(request);
        }
    }

    fn waiting(&self) -> usize {
        self.kept.len()
    }
}

impl Hosted for Sleeper {}

#[test]
fn a_policy_that_sleeps_ends_the_run_as_stuck() {
    let scenario = scenario();
    let error = World::new(&scenario, SEED, scenario.rate_rps, Sleeper::default()).run().unwrap_err().to_string();
    assert!(error.contains("undecided long after their deadlines"), "{error}");
}

#[test]
fn too_many_open_requests_are_the_loads_fault_unless_the_oldest_was_due_long_ago() {
    let scenario = scenario();
    let mut world = World::new(&scenario, SEED, scenario.rate_rps, Sleeper::default());
    world.run().expect_err("it sleeps");
    let id = RequestId { frontend: FrontendId::new(0), boot: BootId::new(SEED), sequence: 7 };
    let open = |deadline, planned| OpenRequest { deadline, planned, ..OpenRequest::default() };
    for of_the_load in [open(Time::NEVER, false), open(Time::ZERO, true)] {
        let error = world.too_many_open(id, &of_the_load);
        assert!(matches!(error, Error::TooManyOpen { .. }) && error.to_string().contains("OPEN_SPAN_MAX"), "{error}");
    }
    let error = world.too_many_open(id, &open(Time::ZERO, false));
    assert!(matches!(&error, Error::Violation { violation, .. } if violation.invariant == Invariant::S5), "{error}");
}

#[test]
fn lost_timers_and_offers_leave_no_event_where_nothing_more_arrives() {
    let mut scenario = scenario();
    let row = |time_s, model| TraceRow { time_s, model: Some(model), ..TraceRow::default() };
    let trace = Trace { rows: vec![row(0.2, 0), row(0.3, 1)], time_scale: 1.0 };
    scenario.rate_rps = trace.rate_rps();
    scenario.arrival = symphony_workload::Arrival::Trace(trace.into());
    run_in(&scenario, Open).expect("the trace alone is served");
    let lose = |_: Time, _: &ModelInput, actions: &mut ModelActions| actions.clear();
    let error = run_in(&scenario, lose).unwrap_err().to_string();
    assert!(error.contains("2 requests wait and no event is left"), "{error}");
    assert!(error.contains("--set workload.arrival.time_scale=1.0"), "{error}");
}

#[test]
fn a_timer_that_asks_for_now_for_ever_ends_the_run_as_stuck() {
    let error = run(|now: Time, _: &ModelInput, actions: &mut ModelActions| {
        actions.list.push(ModelAction::WakeAt(now));
    });
    let error = error.expect_err("spinning is found").to_string();
    assert!(error.contains("steps without an arrival or the passing of time"), "{error}");
}

/// Ignores GPUs that leave.
struct Deaf<P>(P);

impl<P: ClusterPolicy> ClusterPolicy for Deaf<P> {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        if !matches!(input, ClusterInput::GpuDown(_)) {
            self.0.step(now, input, out);
        }
    }

    fn waiting(&self) -> usize {
        self.0.waiting()
    }
}

impl<P: Hosted> Hosted for Deaf<P> {}

#[test]
fn s1_a_plan_for_a_gpu_that_drains() {
    let text = "
        name = 'planted'
        policy = 'eager'
        duration_s = 20
        warmup_s = 0
        seeds = [9]
        gpu = [{ kind = 'x', count = 8 }]
        model = [{ name = 'm', alpha_ms = 1, beta_ms = 5, slo_ms = 25 }]
        workload = { rate_rps = 6000, arrival = 'poisson', rate_profile = [[0, 1.0], [5, 0.02], [15, 1.0]] }
        autoscale = { down_window_s = 3, down_after_up_s = 0 }";
    let scenario = Scenario::parse("planted.toml", text, &[], &|_| Err("no files".to_owned())).unwrap();
    let queues = scenario.policy.queues().expect("the policy is made of queues");
    let facts = PolicyFacts::new(&scenario, SEED, scenario.rate_rps);
    let policy = || QueuesAndRanker::new(&facts, queues, Open);
    World::new(&scenario, SEED, scenario.rate_rps, policy()).run().unwrap();
    let error = World::new(&scenario, SEED, scenario.rate_rps, Deaf(policy())).run().expect_err("it should be found");
    let Error::Violation { violation, .. } = &error else { panic!("another error: {error}") };
    assert!(violation.invariant == Invariant::S1 && violation.detail.contains("is busy until never"), "{error}");
}
