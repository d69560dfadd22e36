//! The budget that a queue plans batches for: the SLO, or what all arriving requests have instead.

use symphony_policy::AutoRule;
use symphony_scheduler::{
    Account, Delays, EarlyStart, ModelAction, ModelActions, ModelInput, ModelQueue, ModelQueueConfig, Policy,
    PoolSignal,
};
use symphony_types::{LatencyProfile, Nanos};

use super::{Host, ms, request, wanted_start};

const POLICIES: [Policy; 2] = [Policy::SYMPHONY, Policy::AUTO];

fn with_slo(policy: Policy, slo_ms: u64, left_out: &[AutoRule]) -> Host {
    let profile = LatencyProfile::from_line(1.0, 5.0, 64).unwrap();
    let (delays, slo) = (Delays::default(), Nanos::from_millis(slo_ms));
    let config = ModelQueueConfig { profiles: profile.into(), slo, policy, delays, requests_max: 1_000 };
    let mut host = Host { queue: ModelQueue::new(config), actions: ModelActions::default() };
    host.queue.leave_out(left_out);
    host
}

/// A request comes each millisecond, with a budget by its number, and is served at once. The pool signals every 50 ms.
fn served_at_once(host: &mut Host, until: u64, budget_ms: impl Fn(u64) -> u64) {
    let early_start = EarlyStart::from_millionths(200_000);
    for at in 0..until {
        if at % 50 == 0 {
            host.step(ms(at), ModelInput::Pool(PoolSignal { early_start, ..PoolSignal::NONE }));
        }
        host.step(ms(at), ModelInput::Arrive(request(at, ms(at + budget_ms(at)))));
        host.grant(at, ms(at));
    }
}

/// What it orders for half a second, and its account. Two requests come each millisecond, a GPU every seven, and plans
/// end later and later.
fn story(host: &mut Host, from: u64, budget_ms: impl Fn(u64) -> u64) -> (Vec<ModelAction>, Account) {
    host.queue.take_account();
    let mut ordered = Vec::new();
    for at in from..from + 500 {
        for twice in 0..2 {
            let sequence = 2 * at + twice;
            ordered.extend(host.step(ms(at), ModelInput::Arrive(request(sequence, ms(at + budget_ms(sequence))))));
        }
        if at % 7 == 0 {
            ordered.extend(host.grant(at, ms(at)));
        }
        if at % 11 == 0 {
            let (start_late, predicted) = (Nanos::from_micros(at - from), Nanos::from_millis(12));
            let latency = predicted + Nanos::from_micros(2 * (at - from));
            ordered.extend(host.step(ms(at), ModelInput::Done { start_late, latency, predicted }));
        }
    }
    (ordered, host.queue.take_account())
}

#[test]
fn where_some_requests_have_the_slo_all_are_decided_as_if_nothing_were_measured() {
    // Most lose a little on their way, half have less, and some have more.
    let budget_ms = |slo_ms: u64| {
        move |sequence: u64| {
            if sequence % 2 == 1 {
                slo_ms / 2
            } else if sequence % 7 == 5 {
                3 * slo_ms
            } else {
                slo_ms - u64::from(sequence.is_multiple_of(3))
            }
        }
    };
    for policy in POLICIES {
        let (mut follows, mut does_not) = (with_slo(policy, 25, &[]), with_slo(policy, 25, &[AutoRule::Budget]));
        for host in [&mut follows, &mut does_not] {
            served_at_once(host, 2_000, budget_ms(25));
        }
        assert_eq!(story(&mut follows, 2_000, budget_ms(25)), story(&mut does_not, 2_000, budget_ms(25)), "{policy:?}");
        // A new SLO holds at once, as the requests that come have it.
        assert!(follows.queue.set_slo(Nanos::from_millis(40)) && does_not.queue.set_slo(Nanos::from_millis(40)));
        assert_eq!(story(&mut follows, 2_500, budget_ms(40)), story(&mut does_not, 2_500, budget_ms(40)), "{policy:?}");
    }
}

#[test]
fn requests_with_another_budget_are_decided_as_if_that_were_the_slo() {
    for policy in POLICIES {
        for (slo_ms, budget_ms) in [(100, 25), (25, 100)] {
            let mut told = with_slo(policy, budget_ms, &[]);
            let (mut follows, mut does_not) =
                (with_slo(policy, slo_ms, &[]), with_slo(policy, slo_ms, &[AutoRule::Budget]));
            for host in [&mut told, &mut follows, &mut does_not] {
                served_at_once(host, 2_000, |_| budget_ms);
            }
            assert_eq!(follows.queue.target_batch(), told.queue.target_batch(), "{policy:?}");
            assert_ne!(does_not.queue.target_batch(), told.queue.target_batch(), "{policy:?}");
            let expected = story(&mut told, 2_000, |_| budget_ms);
            assert_eq!(story(&mut follows, 2_000, |_| budget_ms), expected, "{policy:?}, {slo_ms} and {budget_ms} ms");
            assert_ne!(story(&mut does_not, 2_000, |_| budget_ms), expected, "{policy:?}, {slo_ms} and {budget_ms} ms");
        }
    }
}

#[test]
fn one_slow_plan_does_not_make_a_stage_hopeless_whose_model_has_a_long_slo() {
    // A quarter of the SLO of 200 ms is more than its requests have at all, and without a plan nothing is learnt.
    let is_served = |left_out: &[AutoRule]| {
        let mut host = with_slo(Policy::SYMPHONY, 200, left_out);
        let predicted = Nanos::from_millis(6);
        let latency = predicted.saturating_mul(10);
        host.step(ms(0), ModelInput::Done { start_late: Nanos::ZERO, latency, predicted });
        served_at_once(&mut host, 2_000, |_| 30);
        wanted_start(&host.step(ms(2_000), ModelInput::Arrive(request(2_000, ms(2_030))))).is_some()
    };
    assert!(is_served(&[]));
    assert!(!is_served(&[AutoRule::Budget]));
}
