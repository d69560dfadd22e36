//! What a queue orders, action by action. ℓ(b) = 1·b + 5 ms and an SLO of 25 ms throughout.

use symphony_policy::AutoRule;
use symphony_scheduler::{
    Candidate, DataDelay, DelaySource, Delays, DropCause, DropRule, EarlyStart, GpuChoice, GpuCounts, GrantWhy,
    Matched, ModelAction, ModelActions, ModelInput, ModelQueue, ModelQueueConfig, Overrun, Plan, PlanWhy, Policy,
    PoolSignal, Pressure, Request, Trigger,
};
use symphony_types::{BootId, DropReason, FrontendId, GpuClass, GpuId, LatencyProfile, Nanos, RequestId, Time};

const SLO_MS: u64 = 25;
/// Where there are delays.
const DATA_PER_ITEM: Nanos = Nanos::from_micros(500);

fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn after(time: Time) -> Time {
    time + Nanos::new(1)
}

/// Why every GPU here is granted; goes into the plans as it is.
const CLASS: GpuClass = GpuClass::FIRST;
const WHY: GrantWhy =
    GrantWhy { matched: Matched::AtItsStart, choice: GpuChoice::LowestId, others_idle: 2, rivals: 0, next_rival: None };

fn request(sequence: u64, deadline: Time) -> Request {
    Request { id: RequestId { sequence, ..RequestId::default() }, deadline, items: 1 }
}

struct Host {
    queue: ModelQueue,
    actions: ModelActions,
}

impl Host {
    fn new(policy: Policy, delays: Delays, batch_max: u32, requests_max: usize) -> Self {
        let profile = LatencyProfile::from_line(1.0, 5.0, batch_max).unwrap();
        let (profiles, slo) = (profile.into(), Nanos::from_millis(SLO_MS));
        let config = ModelQueueConfig { profiles, slo, policy, delays, requests_max };
        Self { queue: ModelQueue::new(config), actions: ModelActions::default() }
    }

    fn symphony() -> Self {
        Self::new(Policy::SYMPHONY, Delays::default(), 64, 100)
    }

    fn step(&mut self, now: Time, input: ModelInput) -> Vec<ModelAction> {
        self.actions.clear();
        self.queue.step(now, input, &mut self.actions);
        self.actions.list.clone()
    }

    fn arrive(&mut self, at_ms: u64, sequence: u64) -> Vec<ModelAction> {
        self.step(ms(at_ms), ModelInput::Arrive(request(sequence, ms(at_ms + SLO_MS))))
    }

    fn grant(&mut self, at_ms: u64, free_at: Time) -> Vec<ModelAction> {
        self.step(ms(at_ms), ModelInput::Grant { gpu: GpuId::new(3), class: CLASS, free_at, why: WHY })
    }
}

fn offer(answered: u64, batch: u32, start: Time, latest: Time, lead: Nanos) -> ModelAction {
    // D and, where the batch can grow, D − ℓ(b+1) − d.
    let must_end_by = latest + Nanos::from_millis(u64::from(batch) + 5);
    let data = if lead == Nanos::ZERO { Nanos::ZERO } else { DATA_PER_ITEM };
    let frontrun = latest - Nanos::from_millis(1) - data;
    let candidate = Candidate { batch, start, latest, frontrun, must_end_by, lead, ..Candidate::default() };
    ModelAction::Offer { answered, class: CLASS, candidate: Some(candidate) }
}

/// An offer of a batch that cannot grow: whatever waits, it gains nothing.
fn full(offer: ModelAction) -> ModelAction {
    let ModelAction::Offer { answered, candidate: Some(candidate), .. } = offer else {
        panic!("no candidate: {offer:?}")
    };
    ModelAction::Offer { answered, class: CLASS, candidate: Some(Candidate { frontrun: Time::ZERO, ..candidate }) }
}

#[test]
fn a_batch_waits_until_no_further_arrival_could_join() {
    let mut host = Host::symphony();
    // D = 25: one item takes 6 ms, two take 7.
    let first = host.arrive(0, 1);
    assert_eq!(first, [offer(0, 1, ms(18), ms(19), Nanos::ZERO), ModelAction::WakeAt(after(ms(19)))]);
    let second = host.arrive(1, 2);
    assert_eq!(second, [offer(0, 2, ms(17), ms(18), Nanos::ZERO), ModelAction::WakeAt(after(ms(18)))]);
    // A GPU is granted at the frontrun time: both run, nothing is left.
    let why = PlanWhy {
        frontrun: ms(17),
        guard: Nanos::ZERO,
        latest: ms(18),
        head_arrived: ms(0),
        target: 1,
        skipped: 0,
        left: 0,
        inputs: Nanos::ZERO,
        inputs_by: DelaySource::Configured,
        grant: WHY,
    };
    let plan = Plan {
        gpu: GpuId::new(3),
        start: ms(17),
        end: ms(24),
        batch: 2,
        must_end_by: ms(25),
        first: 0,
        requests: 2,
        why: Some(why),
    };
    let granted = host.grant(17, ms(0));
    assert_eq!(
        granted,
        [
            ModelAction::Execute(plan),
            ModelAction::Release { gpu: GpuId::new(3), free_at: ms(24) },
            ModelAction::Offer { answered: 1, class: CLASS, candidate: None },
            ModelAction::WakeAt(Time::NEVER),
        ]
    );
    let sequences: Vec<_> = host.actions.requests_of(&plan).iter().map(|r| r.id.sequence).collect();
    assert_eq!(sequences, [1, 2]);
}

#[test]
fn a_batch_waits_no_longer_than_a_request_of_several_items_could_join() {
    // Two items, then six: four in the mean, and D = 25 ms after the arrival that comes first.
    let mut host = Host::symphony();
    for sequence in 0..20 {
        let items = if sequence % 2 == 0 { 2 } else { 6 };
        let now = ms(30 * sequence);
        let arrived = Request { items, ..request(sequence, now + Nanos::from_millis(SLO_MS)) };
        let offered = host.step(now, ModelInput::Arrive(arrived));
        let Some(&ModelAction::Offer { candidate: Some(candidate), .. }) = offered.first() else {
            panic!("{offered:?}")
        };
        let step = candidate.latest.since(candidate.frontrun);
        // The first 50 ms know nothing of it.
        match sequence {
            0..2 => assert_eq!(step, Nanos::from_millis(1)),
            2..4 => {}
            _ => assert_eq!(step, Nanos::from_millis(4), "{sequence}"),
        }
        host.grant(30 * sequence, ms(0));
    }
}

#[test]
fn the_eager_trigger_wants_to_start_at_once() {
    let mut host = Host::new(Policy::EAGER, Delays::default(), 64, 100);
    assert_eq!(host.arrive(0, 1)[0], offer(0, 1, ms(0), ms(19), Nanos::ZERO));
    assert_eq!(host.arrive(3, 2)[0], offer(0, 2, ms(3), ms(18), Nanos::ZERO));
}

#[test]
fn the_latest_trigger_waits_for_the_end_of_the_window() {
    let policy = Policy { trigger: Trigger::Latest, ..Policy::SYMPHONY };
    let mut host = Host::new(policy, Delays::default(), 64, 100);
    assert_eq!(host.arrive(0, 1)[0], offer(0, 1, ms(19), ms(19), Nanos::ZERO));
}

#[test]
fn the_timeout_trigger_waits_its_time_but_never_past_the_window_or_a_full_batch() {
    let policy = |wait| Policy { trigger: Trigger::Timeout(Nanos::from_millis(wait)), ..Policy::SYMPHONY };
    let mut patient = Host::new(policy(4), Delays::default(), 2, 100);
    assert_eq!(patient.arrive(0, 1)[0], offer(0, 1, ms(4), ms(19), Nanos::ZERO));
    let two = full(offer(0, 2, ms(1), ms(18), Nanos::ZERO));
    assert_eq!(patient.arrive(1, 2)[0], two, "two are all a batch can hold");
    // After 17 ms of waiting 8 are left of the SLO: three items.
    let mut waits = Host::new(policy(17), Delays::default(), 64, 100);
    waits.arrive(0, 1);
    assert_eq!(waits.arrive(1, 2)[0], offer(0, 2, ms(17), ms(18), Nanos::ZERO));
    assert_eq!(waits.arrive(1, 3)[0], offer(0, 3, ms(1), ms(17), Nanos::ZERO), "a fourth would take 9 ms");
    let mut too_patient = Host::new(policy(100), Delays::default(), 64, 100);
    assert_eq!(too_patient.arrive(0, 1)[0], offer(0, 1, ms(19), ms(19), Nanos::ZERO));
}

#[test]
fn the_beta_lambda_trigger_starts_when_the_batch_has_what_arrives_during_beta() {
    let mut host =
        Host::new(Policy { trigger: Trigger::BetaLambda, ..Policy::SYMPHONY }, Delays::default(), 64, 10_000);
    // 400 items per second: the target is 7 (12 ms + 7/400 s), one GPU does 583 r/s, and 400 r/s × 5 ms = 2 items.
    for millis in (0..400).step_by(5) {
        let deadline = ms(millis + 5);
        (0..2).for_each(|i| drop(host.step(ms(millis), ModelInput::Arrive(request(2 * millis + i, deadline)))));
    }
    let first = host.step(ms(410), ModelInput::Arrive(request(9_001, ms(435))));
    assert!(first.contains(&offer(0, 1, ms(428), ms(429), Nanos::ZERO)), "{first:?}");
    assert_eq!(
        host.step(ms(411), ModelInput::Arrive(request(9_002, ms(436))))[0],
        offer(0, 2, ms(411), ms(428), Nanos::ZERO)
    );
}

#[test]
fn clippers_batches_grow_by_one_and_step_back_when_the_oldest_request_cannot_wait() {
    let mut host = Host::new(Policy::CLIPPER, Delays::default(), 64, 100);
    let mut batches = Vec::new();
    for (at, arrivals) in [(0, 3), (10, 3), (20, 3), (30, 5)] {
        (0..arrivals).for_each(|i| drop(host.arrive(at, at + i)));
        while let Some(ModelAction::Execute(plan)) = host.grant(at, ms(at)).first() {
            batches.push(plan.batch);
        }
    }
    assert_eq!(batches, [1, 2, 3, 3, 4, 1], "the last but one reaches the limit of four");
    // Eleven wait, the limit is five; the oldest has time for two.
    (0..11).for_each(|i| drop(host.arrive(40, 100 + i)));
    let Some(ModelAction::Execute(plan)) = host.grant(40, ms(58)).first().copied() else { panic!("a plan") };
    assert_eq!(plan.batch, 2);
    let Some(ModelAction::Execute(plan)) = host.grant(40, ms(41)).first().copied() else { panic!("a plan") };
    assert_eq!(plan.batch, 4, "a tenth less than five, in whole items");
}

/// Slower inputs than at first: a plan is sent so much earlier, and says by whose word.
#[test]
fn a_measured_delay_holds_for_what_is_decided_next() {
    let mut host = Host::new(Policy::SYMPHONY, Delays::default(), 64, 100);
    let measured = DataDelay {
        fixed: Nanos::from_millis(2),
        per_item: Nanos::from_millis(1),
        max: Nanos::from_micros(3_500),
        source: DelaySource::Measured,
    };
    let plan = |actions: Vec<ModelAction>| {
        let mut plans = actions.iter().filter_map(|action| match action {
            ModelAction::Execute(plan) => Some(*plan),
            _ => None,
        });
        let plan = plans.next().expect("a plan");
        (plan.batch, plan.start, plan.why.map(|why| (why.inputs, why.inputs_by)))
    };
    host.queue.set_data_delay(measured);
    host.arrive(0, 1);
    // D = 25, latest = 19: it starts once its input is there.
    let by = DelaySource::Measured;
    assert_eq!(plan(host.grant(16, ms(0))), (1, ms(19), Some((Nanos::from_millis(3), by))));
    for id in 2..5 {
        host.arrive(20, id);
    }
    let (batch, _, inputs) = plan(host.grant(32, ms(0)));
    assert_eq!((batch, inputs), (3, Some((Nanos::from_micros(3_500), by))), "no more than the ceiling");
}

#[test]
fn a_measured_delay_makes_no_request_hopeless() {
    let bound = |source| {
        let mut host = Host::symphony();
        let slow = Nanos::from_millis(20);
        host.queue.set_data_delay(DataDelay { fixed: slow, per_item: Nanos::from_millis(20), max: slow, source });
        (host.arrive(0, 1), host.queue.data_delay().of(1))
    };
    // ℓ(1) = 6 leaves 19 of 25 ms: half of them are given to inputs. No larger batch would be given more, so the data adds nothing.
    let (offered, given) = bound(DelaySource::Measured);
    assert_eq!(given, Nanos::from_micros(9_500));
    assert!(
        matches!(offered[0], ModelAction::Offer { candidate: Some(Candidate { batch: 1, frontrun, .. }), .. } if frontrun == ms(18)),
        "{offered:?}"
    );
    // What somebody has set stands.
    let (dropped, given) = bound(DelaySource::Configured);
    assert_eq!(given, Nanos::from_millis(20));
    assert!(matches!(dropped[0], ModelAction::Drop { .. }), "{dropped:?}");
}

#[test]
fn delays_come_off_the_deadline_and_the_start() {
    let delays = Delays {
        control: Nanos::from_millis(1),
        data: DataDelay::each_item(DATA_PER_ITEM),
        reply: Nanos::from_millis(2),
        guard: Nanos::from_micros(100),
    };
    let mut host = Host::new(Policy::SYMPHONY, delays, 64, 100);
    // D = 25 − 2 = 23. frontrun = 23 − ℓ(2) − d − guard = 15.4; latest = 23 − ℓ(1) = 17; lead = 1 + 0.5.
    let start = Time::from_nanos(15_400_000);
    let lead = Nanos::from_micros(1500);
    let wake_at = after(Time::from_nanos(15_500_000));
    assert_eq!(host.arrive(0, 1), [offer(0, 1, start, ms(17), lead), ModelAction::WakeAt(wake_at)]);
}

#[test]
fn a_request_that_cannot_be_met_alone_is_dropped_when_that_becomes_certain() {
    let mut host = Host::symphony();
    host.arrive(0, 1);
    let woken = host.step(after(ms(19)), ModelInput::Wake);
    // Alone it takes 6 ms.
    let best = after(ms(25));
    let cause = DropCause {
        class: CLASS,
        arrived: ms(0),
        must_end_by: ms(25),
        batch: 1,
        target: 1,
        batch_end: best,
        alone_end: best,
        waiting: 1,
        shed: None,
    };
    assert_eq!(
        woken,
        [
            ModelAction::Drop { request: request(1, ms(25)), reason: DropReason::SloUnreachable, cause },
            ModelAction::Offer { answered: 0, class: CLASS, candidate: None },
        ]
    );
    assert!(host.queue.is_empty());
    // One that arrives without any time left is dropped on arrival.
    let late = request(2, ms(31));
    let arrived = host.step(ms(30), ModelInput::Arrive(late));
    let cause = DropCause {
        class: CLASS,
        arrived: ms(30),
        must_end_by: ms(31),
        batch: 1,
        target: 1,
        batch_end: ms(36),
        alone_end: ms(36),
        waiting: 1,
        shed: None,
    };
    assert_eq!(arrived[0], ModelAction::Drop { request: late, reason: DropReason::SloUnreachable, cause });
}

#[test]
fn only_what_could_be_met_when_it_came_expires() {
    let reason = |actions: &[ModelAction]| match actions[0] {
        ModelAction::Drop { reason, .. } => reason,
        ref other => panic!("{other:?}"),
    };
    let mut host = Host::symphony();
    let over = host.step(ms(30), ModelInput::Arrive(request(1, ms(29))));
    assert_eq!(reason(&over), DropReason::SloUnreachable, "its deadline had passed on its way");
    // It has 25 ms and needs 6; who should wake its queue slept for longer.
    host.step(ms(40), ModelInput::Arrive(request(2, ms(65))));
    assert_eq!(reason(&host.step(ms(70), ModelInput::Wake)), DropReason::QueueExpired);
    // One that was planned, or with another leader, before: it came with more.
    assert_eq!(reason(&host.step(ms(80), ModelInput::Return(request(3, ms(79))))), DropReason::QueueExpired);
}

#[test]
fn an_unused_grant_returns_the_gpu_as_it_was() {
    let mut host = Host::symphony();
    let nothing = host.grant(5, ms(40));
    assert_eq!(
        nothing,
        [
            ModelAction::Release { gpu: GpuId::new(3), free_at: ms(40) },
            ModelAction::Offer { answered: 1, class: CLASS, candidate: None }
        ]
    );
    // A GPU that is free too late for what waits comes back as well, and nothing is given up on its account.
    host.arrive(10, 1);
    let too_late = host.grant(10, ms(60));
    assert_eq!(too_late[0], ModelAction::Release { gpu: GpuId::new(3), free_at: ms(60) });
    assert_eq!(host.queue.len(), 1);
}

/// Brings the target batch to `rate · (SLO − …)` by a steady stream that is served at once.
fn aim(host: &mut Host, until_ms: u64) {
    for at in 0..until_ms {
        host.arrive(at, at);
        host.grant(at, ms(at));
    }
}

#[test]
fn the_window_gives_up_a_head_that_would_shrink_the_batch_of_many() {
    let mut host = Host::symphony();
    // 1000 items per second: ℓ(b) + b/rate = 5 + 2b ≤ 25 aims at b = 10.
    aim(&mut host, 200);
    assert_eq!(host.queue.target_batch(), 10);
    // A head with 10 ms left allows a batch of 5. Four more wait: no reason to give it up.
    let head = request(900, ms(310));
    host.step(ms(300), ModelInput::Arrive(head));
    for sequence in 901..905 {
        host.step(ms(300), ModelInput::Arrive(request(sequence, ms(325))));
    }
    assert_eq!(host.queue.len(), 5);
    // Eight more: a batch of ten could start now without it.
    let mut dropped = Vec::new();
    for sequence in 905..913 {
        dropped.extend(host.step(ms(300), ModelInput::Arrive(request(sequence, ms(325)))));
    }
    let dropped: Vec<_> = dropped.iter().filter(|a| matches!(a, ModelAction::Drop { .. })).collect();
    // Six behind it could start together; with it in a batch of at least six it would end at 311, alone at 306.
    let cause = DropCause {
        class: CLASS,
        arrived: ms(300),
        must_end_by: ms(310),
        batch: 6,
        target: 8,
        batch_end: ms(311),
        alone_end: ms(306),
        waiting: 7,
        shed: None,
    };
    assert_eq!(dropped, [&ModelAction::Drop { request: head, reason: DropReason::ProtectBatch, cause }]);
    assert_eq!(host.queue.len(), 12);
}

#[test]
fn pruning_keeps_the_head_and_shrinks_the_batch() {
    let policy = Policy { drop: DropRule::Prune, ..Policy::EAGER };
    let mut host = Host::new(policy, Delays::default(), 64, 100);
    host.step(ms(300), ModelInput::Arrive(request(900, ms(310))));
    let mut last = Vec::new();
    for sequence in 901..913 {
        last = host.step(ms(300), ModelInput::Arrive(request(sequence, ms(325))));
    }
    assert_eq!(host.queue.len(), 13);
    assert_eq!(last, [], "the candidate stays a batch of 5");
    let plans = host.grant(300, ms(300));
    assert!(matches!(plans[0], ModelAction::Execute(Plan { batch: 5, .. })), "{plans:?}");
}

#[test]
fn a_full_queue_refuses_and_says_so() {
    let mut host = Host::new(Policy::SYMPHONY, Delays::default(), 64, 2);
    host.arrive(0, 1);
    host.arrive(0, 2);
    let refused = host.arrive(0, 3);
    let cause = DropCause {
        class: CLASS,
        arrived: ms(0),
        must_end_by: ms(25),
        batch: 0,
        target: 1,
        batch_end: Time::NEVER,
        alone_end: ms(6),
        waiting: 2,
        shed: None,
    };
    let reason = DropReason::QueueFull;
    assert_eq!(refused, [ModelAction::Drop { request: request(3, ms(25)), reason, cause }]);
    assert_eq!(host.queue.len(), 2);
}

#[test]
fn deadlines_order_the_queue_and_a_cancelled_request_leaves_it() {
    let mut host = Host::symphony();
    host.step(ms(0), ModelInput::Arrive(request(1, ms(40))));
    host.step(ms(0), ModelInput::Arrive(request(2, ms(20))));
    let three = host.step(ms(0), ModelInput::Arrive(request(3, ms(30))));
    assert_eq!(three[0], offer(0, 3, ms(11), ms(12), Nanos::ZERO), "the earliest deadline, 20 ms, rules");
    let cancelled = host.step(ms(1), ModelInput::Cancel(request(2, ms(0)).id));
    assert_eq!(cancelled[0], offer(0, 2, ms(22), ms(23), Nanos::ZERO));
    assert_eq!(host.step(ms(1), ModelInput::Cancel(request(77, ms(0)).id)), [], "an unknown one changes nothing");
    let gone = ModelInput::Withdraw { frontend: FrontendId::new(9), boot: BootId::default() };
    assert_eq!(host.step(ms(1), gone), [], "another frontend's leave changes nothing");
    let order: Vec<_> = host.queue.clone().into_requests().map(|r| r.id.sequence).collect();
    assert_eq!(order, [3, 1]);
    let gone = ModelInput::Withdraw { frontend: FrontendId::default(), boot: BootId::default() };
    assert_eq!(host.step(ms(1), gone)[0], ModelAction::Offer { answered: 0, class: CLASS, candidate: None });
    assert!(host.queue.is_empty());
}

#[test]
fn a_request_of_several_items_counts_as_that_many() {
    let mut host = Host::symphony();
    let three = Request { items: 3, ..request(1, ms(25)) };
    let one = host.step(ms(0), ModelInput::Arrive(three));
    // ℓ(3) = 8, ℓ(4) = 9.
    assert_eq!(one[0], offer(0, 3, ms(16), ms(17), Nanos::ZERO));
    let two = host.step(ms(0), ModelInput::Arrive(Request { items: 4, ..request(2, ms(25)) }));
    assert_eq!(two[0], offer(0, 7, ms(12), ms(13), Nanos::ZERO));
    // At 14 ms only six items could still make it: the first request goes alone.
    let woken = host.step(ms(14), ModelInput::Wake);
    assert_eq!(woken[0], offer(0, 3, ms(16), ms(17), Nanos::ZERO));
    let plans = host.grant(16, ms(16));
    assert!(matches!(plans[0], ModelAction::Execute(Plan { batch: 3, requests: 1, .. })), "{plans:?}");
}

#[test]
fn plans_that_end_late_move_the_window_earlier_by_at_most_a_quarter_of_the_slo() {
    let mut host = Host::symphony();
    assert_eq!(host.arrive(0, 1)[0], offer(0, 1, ms(18), ms(19), Nanos::ZERO));
    // Started 1 ms late and took a third longer than the 6 ms of the plan, as ℓ(1) = 6 ms and ℓ(2) = 7 ms may, too; an early end makes up for
    // nothing.
    let done = |late: u64, took: u64| ModelInput::Done {
        start_late: Nanos::from_millis(late),
        latency: Nanos::from_millis(took),
        predicted: Nanos::from_millis(6),
    };
    let window = |host: &mut Host, done: ModelInput| match host.step(ms(1), done)[..] {
        [ModelAction::Offer { candidate: Some(Candidate { start, latest, .. }), .. }, ..] => Some((start, latest)),
        _ => None,
    };
    let before_deadline = |micros: u64| ms(25) - Nanos::from_micros(micros);
    let thousandths = |whole: u64| whole * 1333 / 1000;
    let late = (before_deadline(1_000 + thousandths(7_000)), before_deadline(1_000 + thousandths(6_000)));
    assert_eq!(window(&mut host, done(1, 8)), Some(late));
    assert_eq!(window(&mut host, done(1, 4)), None, "nothing has changed");
    // 25 ms / 4 = 6.25 ms, of which 1 ms are the late start.
    let latest = before_deadline(6_000 + 6_250);
    assert_eq!(window(&mut host, done(0, 106)), Some((before_deadline(1_000 + 7_000 + 5_250), latest)));
}

#[test]
fn a_model_that_has_run_little_plans_for_what_is_usual_where_it_runs() {
    let mut host = Host::symphony();
    host.arrive(0, 1);
    // Half of ℓ(1) = 6 ms and of ℓ(2) = 7 ms.
    let usual = PoolSignal { overrun: Overrun::from_thousandths(500), ..PoolSignal::NONE };
    let said = host.step(ms(1), ModelInput::Pool(usual));
    assert!(
        matches!(said[0], ModelAction::Offer { candidate: Some(Candidate { start, latest, .. }), .. }
            if (start, latest) == (ms(25) - Nanos::from_micros(10_500), ms(16))),
        "{said:?}"
    );
    let takes = Nanos::from_millis(6);
    let done = ModelInput::Done { start_late: Nanos::ZERO, latency: takes, predicted: takes };
    for plans in 1..128 {
        assert_eq!(host.step(ms(1), done), [], "{plans} plans in time");
    }
    assert_eq!(host.step(ms(1), done)[0], offer(0, 1, ms(18), ms(19), Nanos::ZERO), "it knows itself now");
    assert_eq!(host.step(ms(1), ModelInput::Pool(usual)), []);
}

#[test]
fn the_adaptive_trigger_waits_as_long_as_another_arrival_is_likely() {
    let mut host = Host::new(Policy::AUTO, Delays::default(), 64, 1_000);
    host.step(ms(0), ModelInput::Pool(PoolSignal { early_start: EarlyStart::from_millionths(0), ..PoolSignal::NONE }));
    // Bursts of five, a millisecond apart, every 100 ms; a grant empties the queue after each.
    let mut sequence = 0;
    let mut last = Vec::new();
    for burst in 0..40 {
        for at in 0..5 {
            last = host.arrive(burst * 100 + at, sequence);
            sequence += 1;
        }
        if burst < 39 {
            host.grant(burst * 100 + 10, ms(0));
        }
    }
    // Five requests since 3900: frontrun is 3925 − 11 = 3914. But nothing ever follows the fifth within 10 ms, and that
    // becomes likely as soon as a millisecond has passed without an arrival.
    let [ModelAction::Offer { candidate: Some(candidate), .. }, ..] = last[..] else { panic!("{last:?}") };
    assert_eq!((candidate.batch, candidate.latest), (5, ms(3915)));
    assert!((ms(3904)..ms(3906)).contains(&candidate.start), "{candidate:?}");
}

/// When the candidate that waits wants to start.
fn wanted_start(actions: &[ModelAction]) -> Option<Time> {
    actions.iter().find_map(|action| match action {
        ModelAction::Offer { candidate: Some(candidate), .. } => Some(candidate.start),
        _ => None,
    })
}

#[test]
fn starts_of_one_model_keep_a_distance_so_that_a_burst_does_not_take_all_gpus_one_by_one() {
    let mut host = Host::new(Policy::AUTO, Delays::default(), 64, 1_000);
    assert_eq!(wanted_start(&host.arrive(0, 1)), Some(ms(0)), "how many GPUs there are is not known yet");
    let gpus = |gpus: u32| {
        let mut counts = GpuCounts::default();
        counts.0[CLASS.index()] = gpus;
        // Of another class: no GPUs for this model.
        counts.0[CLASS.index() + 1] = 60;
        ModelInput::Pool(PoolSignal { gpus: counts, ..PoolSignal::NONE })
    };
    host.step(ms(0), gpus(8));
    host.grant(0, ms(0));
    // ℓ(1) = 6 ms over eight GPUs, of which one more may be taken at once.
    assert_eq!(wanted_start(&host.arrive(0, 2)), Some(ms(0)));
    host.grant(0, ms(0));
    assert_eq!(wanted_start(&host.arrive(0, 3)), Some(Time::ZERO + Nanos::from_micros(750)));
    host.grant(1, ms(1));
    assert_eq!(wanted_start(&host.arrive(9, 5)), Some(ms(9)), "long enough ago");
    // Never beyond frontrun, from which on waiting gains nothing: 10 + 25 − ℓ(2).
    host.grant(9, ms(9));
    host.step(ms(9), gpus(1));
    host.arrive(9, 6);
    host.grant(9, ms(9));
    let tight = Request { deadline: ms(10 + 8), ..request(7, ms(0)) };
    assert_eq!(wanted_start(&host.step(ms(10), ModelInput::Arrive(tight))), Some(ms(11)), "its deadline less ℓ(2)");
}

#[test]
fn one_slow_plan_does_not_make_a_model_hopeless_that_has_little_time_to_spare() {
    // ℓ(1) = 21 ms of an SLO of 25 ms; the first plan takes half as long again.
    let profile = LatencyProfile::from_line(1.0, 20.0, 64).unwrap();
    let (delays, slo) = (Delays::default(), Nanos::from_millis(SLO_MS));
    let config = ModelQueueConfig { profiles: profile.into(), slo, policy: Policy::SYMPHONY, delays, requests_max: 9 };
    let mut host = Host { queue: ModelQueue::new(config), actions: ModelActions::default() };
    let predicted = Nanos::from_millis(21);
    host.step(ms(0), ModelInput::Done { start_late: Nanos::ZERO, latency: predicted.saturating_mul(3), predicted });
    assert!(wanted_start(&host.arrive(1, 1)).is_some());
}

#[test]
fn a_model_that_keeps_less_than_one_gpu_busy_waits_no_longer_than_three_executions() {
    // 79 ms less two of ℓ(1) = 6 ms and the 73 of SLO − ℓ(1): what is left of the wait is 18 ms.
    let start = |every_ms: u64| {
        let profile = LatencyProfile::from_line(1.0, 5.0, 64).unwrap();
        let (delays, slo) = (Delays::default(), Nanos::from_millis(79));
        let config =
            ModelQueueConfig { profiles: profile.into(), slo, policy: Policy::AUTO, delays, requests_max: 900 };
        let mut host = Host { queue: ModelQueue::new(config), actions: ModelActions::default() };
        host.step(
            ms(0),
            ModelInput::Pool(PoolSignal { early_start: EarlyStart::from_millionths(1), ..PoolSignal::NONE }),
        );
        let mut last = Vec::new();
        for at in (0..1_000).step_by(every_ms as usize) {
            for item in 0..3 {
                last = host.step(ms(at), ModelInput::Arrive(request(at * 3 + item, ms(at + 79))));
            }
            host.grant(at, Time::ZERO);
        }
        let [ModelAction::Offer { candidate: Some(candidate), .. }, ..] = last[..] else { panic!("{last:?}") };
        candidate.frontrun.since(candidate.start)
    };
    assert_eq!(start(10), Nanos::from_millis(55), "300 a second keep half a GPU busy");
    assert!(start(1) < Nanos::from_millis(1), "3000 a second keep three busy");
}

#[test]
fn rules_that_are_left_out_do_nothing() {
    let late_and_spaced = PoolSignal {
        early_start: EarlyStart::from_millionths(0),
        overrun: Overrun::from_thousandths(500),
        gpus: GpuCounts([1; symphony_types::GPU_CLASSES_MAX]),
        ..PoolSignal::NONE
    };
    let start = |rules: &[AutoRule]| {
        let mut host = Host::new(Policy::AUTO, Delays::default(), 64, 1_000);
        host.queue.leave_out(rules);
        host.step(ms(0), ModelInput::Pool(late_and_spaced));
        host.arrive(0, 1);
        host.grant(0, ms(0));
        wanted_start(&host.arrive(1, 2)).unwrap()
    };
    // 1 + 25 less one and a half times ℓ(2) = 7 ms.
    assert_eq!(start(&[]), Time::ZERO + Nanos::from_micros(15_500));
    assert_eq!(start(&[AutoRule::Gaps]), start(&[]), "too few gaps to say anything");
    assert_eq!(start(&[AutoRule::Overrun]), ms(19));
    assert_eq!(
        start(&[AutoRule::Load, AutoRule::Overrun]),
        Time::ZERO + Nanos::from_micros(5_250),
        "seven eighths of ℓ(1) after the one before"
    );
    assert_eq!(start(&[AutoRule::Load, AutoRule::Spacing]), ms(1));
}

#[test]
fn one_absurd_request_does_not_change_what_the_model_aims_at() {
    let mut host = Host::symphony();
    for at in 0..200 {
        host.arrive(at * 10, at);
    }
    let target = host.queue.target_batch();
    let absurd = Request { items: u32::MAX, ..request(1_000, ms(2_005 + SLO_MS)) };
    let actions = host.step(ms(2_005), ModelInput::Arrive(absurd));
    assert!(actions.iter().any(|action| matches!(action, ModelAction::Drop { .. })), "{actions:?}");
    for at in 201..210 {
        host.arrive(at * 10, at);
    }
    assert!(host.queue.target_batch() <= target + 1, "{} after {target}", host.queue.target_batch());
}

#[test]
fn what_comes_back_waits_again_and_is_no_new_load() {
    for (policy, limit) in [(Policy::SYMPHONY, 100), (Policy::AUTO, 3)] {
        let mut host = Host::new(policy, Delays::default(), 64, limit);
        for millis in 0..2_000 {
            let back = host.step(ms(millis), ModelInput::Return(request(millis, ms(millis + SLO_MS))));
            let offer = back.iter().any(|action| matches!(action, ModelAction::Offer { candidate: Some(_), .. }));
            assert!(offer || host.queue.len() == limit, "{back:?}");
        }
        assert_eq!((host.queue.rate_per_second(), host.queue.target_batch()), (0.0, 1), "{policy:?}");
        let late = ms(2_000 + SLO_MS);
        for sequence in 0..=limit as u64 {
            host.step(ms(2_000), ModelInput::Return(request(10_000 + sequence, late)));
        }
        assert!(host.queue.len() <= limit, "the limit holds for them too");
    }
}

#[test]
fn withdrawn_together_is_withdrawn_one_by_one_with_one_candidate() {
    let (mut together, mut one_by_one) = (Host::symphony(), Host::symphony());
    let gone = [7, 3, 12, 40, 3, 8];
    for host in [&mut together, &mut one_by_one] {
        for sequence in 0..20 {
            let items = 1 + u32::from(sequence % 4 == 0);
            let arriving = Request { items, ..request(sequence, ms(20 + sequence)) };
            host.step(ms(0), ModelInput::Arrive(arriving));
        }
    }
    for sequence in gone {
        one_by_one.step(ms(1), ModelInput::Cancel(request(sequence, ms(0)).id));
    }
    for sequence in gone {
        assert_eq!(together.step(ms(1), ModelInput::CancelWithNext(request(sequence, ms(0)).id)), []);
        assert_eq!(together.queue.len(), 20, "it leaves with the next input");
    }
    together.step(ms(1), ModelInput::Wake);
    assert_eq!((together.queue.len(), one_by_one.queue.len()), (16, 16));
    assert_eq!(together.grant(2, ms(2)), one_by_one.grant(2, ms(2)));
    assert_eq!(together.actions.planned, one_by_one.actions.planned);
    assert_eq!(together.arrive(3, 100), one_by_one.arrive(3, 100));
}

/// A queue of `auto` that is told for so long, every 50 ms, that half has to be given up; 20 requests arrive evenly after each. Those that
/// were shed in the last 50 ms, by how long they had waited.
fn pressed_for(millis: u64) -> (Host, Vec<u64>) {
    let mut host = Host::new(Policy::AUTO, Delays::default(), 64, 100);
    let mut waited = Vec::new();
    for at_us in (0..=millis * 1000).step_by(2_500) {
        let now = Time::from_nanos(at_us * 1000);
        if at_us % 50_000 == 0 {
            host.step(now, ModelInput::Pool(Pressure::from_share(0.5).into()));
            waited.clear();
        }
        let arrived = ModelInput::Arrive(request(at_us, now + Nanos::from_millis(SLO_MS)));
        for action in host.step(now, arrived) {
            if let ModelAction::Drop { request, reason: DropReason::Shed, .. } = action {
                waited.push(at_us - request.id.sequence);
            }
        }
        if host.queue.len() >= 3 {
            host.step(now, ModelInput::Grant { gpu: GpuId::new(3), class: CLASS, free_at: now, why: WHY });
        }
    }
    (host, waited)
}

#[test]
fn in_a_lasting_overload_the_first_in_line_gives_way() {
    let (briefly, waited) = pressed_for(980);
    assert!(!waited.is_empty() && waited.iter().all(|&us| us == 0), "as they arrive: {waited:?}");
    let (lasting, waited) = pressed_for(3_980);
    assert!(waited.iter().filter(|&&us| us > 0).count() > waited.len() / 2, "who has waited longest: {waited:?}");
    // 400 a second arrive, twice as many as were let in: 5 + b + b / 0.4 ≤ 25, and all of it is protected, not three quarters.
    assert!(briefly.queue.target_batch() < 5);
    assert_eq!(lasting.queue.target_batch(), 5);
}

#[test]
fn batches_start_as_early_as_the_pool_says_and_what_waits_hears_of_it() {
    let start = |action: &ModelAction| match action {
        ModelAction::Offer { candidate, .. } => candidate.map(|candidate| candidate.start),
        _ => None,
    };
    let told = |millionths: u32| {
        ModelInput::Pool(PoolSignal { early_start: EarlyStart::from_millionths(millionths), ..PoolSignal::NONE })
    };
    let mut host = Host::new(Policy::AUTO, Delays::default(), 64, 100);
    // 25 ms less the 7 of two items.
    assert_eq!(host.arrive(100, 1).iter().find_map(start), Some(ms(100)), "nothing is said: at once");
    assert_eq!(host.step(ms(100), told(0)).iter().find_map(start), Some(ms(118)));
    assert_eq!(
        host.step(ms(100), told(200_000)).iter().find_map(start),
        Some(ms(118) - Nanos::from_micros(3_800)),
        "a fifth of 19 ms"
    );
    assert_eq!(host.step(ms(101), told(200_000)), [], "nothing new");
    assert_eq!(host.step(ms(102), told(950_000)).iter().find_map(start), Some(ms(102)));
    // Who does not follow the pool does not hear it.
    let mut host = Host::symphony();
    assert_eq!(host.arrive(100, 1).iter().find_map(start), Some(ms(118)));
    assert_eq!(host.step(ms(100), told(1_000_000)).iter().find_map(start), None);
}

#[test]
fn auto_waits_as_long_as_another_request_is_likely() {
    let mut host = Host::new(Policy::AUTO, Delays::default(), 64, 100);
    host.step(ms(0), ModelInput::Pool(PoolSignal { early_start: EarlyStart::from_millionths(0), ..PoolSignal::NONE }));
    // Every 5 ms, each answered at once: another one is sure to come within the 18 ms that a single request can wait.
    let mut last = Vec::new();
    for sequence in 0..100 {
        last = host.arrive(5 * sequence, sequence);
        host.grant(5 * sequence, Time::ZERO);
    }
    let offered = last.iter().find_map(|action| match action {
        ModelAction::Offer { candidate, .. } => *candidate,
        _ => None,
    });
    let candidate = offered.expect("it offers what arrived");
    assert_eq!((candidate.batch, candidate.start), (1, candidate.frontrun));
}
