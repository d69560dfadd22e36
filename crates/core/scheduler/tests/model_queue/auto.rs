//! `auto`: early starts, gaps, spacing, and how it gives requests up in a lasting overload.

use symphony_policy::AutoRule;
use symphony_scheduler::{
    Delays, EarlyStart, GpuCounts, ModelAction, ModelActions, ModelInput, ModelQueue, ModelQueueConfig, Overrun,
    Policy, PoolSignal, Pressure, Request,
};
use symphony_types::{DropReason, GpuId, LatencyProfile, Nanos, RequestValue, Time};

use super::{CLASS, Host, SLO_MS, WHY, ms, request, wanted_start};

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
    host.step(ms(9), gpus(2));
    host.arrive(9, 6);
    host.grant(9, ms(9));
    host.arrive(9, 8);
    host.grant(9, ms(9));
    let tight = Request { deadline: ms(10 + 8), ..request(7, ms(0)) };
    assert_eq!(wanted_start(&host.step(ms(10), ModelInput::Arrive(tight))), Some(ms(11)), "its deadline less ℓ(2)");
    // However often starts at frontrun came faster than predicted, nothing is owed a batch later.
    host.step(ms(20), gpus(2));
    for at in 20..30 {
        host.arrive(at, at);
        host.grant(at, ms(at));
    }
    assert_eq!(wanted_start(&host.arrive(36, 99)), Some(ms(36)));
    host.grant(36, ms(36));
    // A single GPU is taken as soon as it is free, which may be sooner than predicted.
    host.step(ms(37), gpus(1));
    assert_eq!(wanted_start(&host.arrive(40, 10)), Some(ms(40)));
    host.grant(40, ms(40));
    assert_eq!(wanted_start(&host.arrive(40, 11)), Some(ms(40)));
}

#[test]
fn a_model_that_keeps_less_than_one_gpu_busy_waits_no_longer_than_three_executions() {
    // W = 79 − ℓ(1) = 73 ms, of which 3 ℓ(1) = 18 ms are waited: it starts 55 ms before frontrun.
    let start = |every_ms: u64, left_out: &[AutoRule]| {
        let profile = LatencyProfile::from_line(1.0, 5.0, 64).unwrap();
        let (delays, slo) = (Delays::default(), Nanos::from_millis(79));
        let config =
            ModelQueueConfig { profiles: profile.into(), slo, policy: Policy::AUTO, delays, requests_max: 900 };
        let mut host = Host { queue: ModelQueue::new(config), actions: ModelActions::default() };
        host.queue.leave_out(left_out);
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
    assert_eq!(start(10, &[]), Nanos::from_millis(55), "300 a second keep half a GPU busy");
    assert!(start(10, &[AutoRule::ShortWaits]) < Nanos::from_millis(1), "the rule is left out");
    assert!(start(1, &[]) < Nanos::from_millis(1), "3000 a second keep three busy");
}

#[test]
fn rules_that_are_left_out_do_nothing() {
    let late_and_spaced = PoolSignal {
        early_start: EarlyStart::from_millionths(0),
        overrun: Overrun::from_thousandths(500),
        gpus: GpuCounts([2; symphony_types::GPU_CLASSES_MAX]),
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
        Time::ZERO + Nanos::from_micros(2_250),
        "half of ℓ(1) less an eighth after the one before"
    );
    assert_eq!(start(&[AutoRule::Load, AutoRule::Spacing]), ms(1));
}

/// A queue of `auto` that learns every 50 ms, for so long, that half must be given up; 20 requests arrive evenly after
/// each. Returns the requests shed in the last 50 ms, by how long they had waited.
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
    // 400 a second arrive, twice as many as were let in: 5 + b + b / 0.4 ≤ 25, and all of it is protected, not three
    // quarters.
    assert!(briefly.queue.target_batch() < 5);
    assert_eq!(lasting.queue.target_batch(), 5);
}

#[test]
fn in_a_lasting_overload_the_first_of_the_same_weight_gives_way() {
    let weights = [1.0, 4.0].map(|number| RequestValue::from_number(number).unwrap());
    let mut host = Host::new(Policy::AUTO, Delays::default(), 64, 100);
    let (mut arrived, mut shed, mut waited) = ([0_u64; 2], [0_u64; 2], 0);
    for number in 0..1_600_u64 {
        let at_us = number * 2_500;
        let now = Time::from_nanos(at_us * 1000);
        if at_us % 50_000 == 0 {
            host.step(now, ModelInput::Pool(Pressure::from_share(0.5).into()));
        }
        // In turn: the worst order for a sum over both.
        let which = (number % 2) as usize;
        let lasts = at_us > 2_000_000;
        arrived[which] += u64::from(lasts);
        let deadline = now + Nanos::from_millis(SLO_MS);
        let request = Request { weight: weights[which], ..request(at_us, deadline) };
        for action in host.step(now, ModelInput::Arrive(request)) {
            if let ModelAction::Drop { request: lost, reason: DropReason::Shed, cause } = action {
                assert_eq!(lost.weight, request.weight, "who is worth more loses nothing for who is worth less");
                assert_eq!(cause.shed.unwrap().value, lost.weight, "of a model of value one");
                shed[usize::from(lost.weight == weights[1])] += u64::from(lasts);
                waited += u64::from(lasts && lost.id != request.id);
            }
        }
        if host.queue.len() >= 3 {
            host.step(now, ModelInput::Grant { gpu: GpuId::new(3), class: CLASS, free_at: now, why: WHY });
        }
    }
    let share = |at: usize| shed[at] as f64 / arrived[at] as f64;
    // Drops for other reasons count, and are few here.
    assert!((share(0) - 0.5).abs() < 0.05 && (share(1) - 0.125).abs() < 0.02, "{shed:?} of {arrived:?}");
    assert!(waited > 0, "those that have waited longest");
}

#[test]
fn batches_start_as_early_as_the_pool_says_and_what_waits_hears_of_it() {
    let start = |action: &ModelAction| match action {
        ModelAction::Offer { candidate, .. } => candidate.map(|candidate| candidate.start),
        _ => None,
    };
    let early_start = |millionths: u32| {
        ModelInput::Pool(PoolSignal { early_start: EarlyStart::from_millionths(millionths), ..PoolSignal::NONE })
    };
    let mut host = Host::new(Policy::AUTO, Delays::default(), 64, 100);
    // 25 ms less the 7 of two items.
    assert_eq!(host.arrive(100, 1).iter().find_map(start), Some(ms(100)), "nothing is said: at once");
    assert_eq!(host.step(ms(100), early_start(0)).iter().find_map(start), Some(ms(118)));
    assert_eq!(
        host.step(ms(100), early_start(200_000)).iter().find_map(start),
        Some(ms(118) - Nanos::from_micros(3_800)),
        "a fifth of 19 ms"
    );
    assert_eq!(host.step(ms(101), early_start(200_000)), [], "nothing new");
    assert_eq!(host.step(ms(102), early_start(950_000)).iter().find_map(start), Some(ms(102)));
    // A policy that does not follow the pool ignores its signal.
    let mut host = Host::symphony();
    assert_eq!(host.arrive(100, 1).iter().find_map(start), Some(ms(118)));
    assert_eq!(host.step(ms(100), early_start(1_000_000)).iter().find_map(start), None);
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
