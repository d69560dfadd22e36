//! Which batches wait, form, shrink and are given up, and what comes back.

use symphony_scheduler::{
    DelaySource, Delays, DropCause, DropRule, ModelAction, ModelInput, Plan, PlanWhy, Policy, Request, Trigger,
};
use symphony_types::{BootId, DropReason, FrontendId, GpuId, Nanos, Time};

use super::{CLASS, Host, SLO_MS, WHY, after, full, ms, offer, request};

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

/// Slower inputs than at first: a plan is sent earlier by that, and says whose delay it used.

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
    // A request that arrives without any time left is dropped on arrival.
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
    // It has 25 ms and needs 6, but what should wake its queue slept for longer.
    host.step(ms(40), ModelInput::Arrive(request(2, ms(65))));
    assert_eq!(reason(&host.step(ms(70), ModelInput::Wake)), DropReason::QueueExpired);
    // A request that was planned before, or was with another leader: it came with more.
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

#[test]
fn what_comes_back_together_is_queued_as_one_by_one_with_one_candidate() {
    let (mut together, mut one_by_one) = (Host::symphony(), Host::symphony());
    let back = |sequence: u64| Request {
        items: 1 + u32::from(sequence.is_multiple_of(4)),
        ..request(sequence, ms(40 + sequence))
    };
    for sequence in 0..20 {
        one_by_one.step(ms(0), ModelInput::Return(back(sequence)));
        let is_last = sequence == 19;
        let input = if is_last { ModelInput::Return } else { ModelInput::ReturnWithNext };
        let offered = !together.step(ms(0), input(back(sequence))).is_empty();
        assert_eq!(offered, is_last, "{sequence}");
    }
    assert_eq!((together.queue.len(), one_by_one.queue.len()), (20, 20));
    assert_eq!(together.grant(2, ms(2)), one_by_one.grant(2, ms(2)));
    assert_eq!(together.actions.planned, one_by_one.actions.planned);
    // The last one finds no room: those before it are offered all the same.
    let mut small = Host::new(Policy::SYMPHONY, Delays::default(), 64, 1);
    assert_eq!(small.step(ms(0), ModelInput::ReturnWithNext(back(1))), []);
    let actions = small.step(ms(0), ModelInput::Return(back(2)));
    let has = |wanted: fn(&ModelAction) -> bool| actions.iter().any(wanted);
    assert!(has(|action| matches!(action, ModelAction::Drop { reason: DropReason::QueueFull, .. })), "{actions:?}");
    assert!(has(|action| matches!(action, ModelAction::Offer { candidate: Some(_), .. })), "{actions:?}");
}
