use std::sync::Arc;

use symphony_scheduler::rivals::{Nexus, NexusSettings};
use symphony_scheduler::{ClassProfiles, ClusterInput, ClusterModel, ClusterPolicy, Delays};
use symphony_types::{GpuClass, GpuId, LatencyProfile, Nanos, Time};

use super::Order::{Drop, Execute, WakeAt};
use super::{Host, after, cluster, facts, ms};

fn nexus(slos_ms: &[u64], settings: NexusSettings) -> Host<Nexus> {
    Host::new(Nexus::new(&facts(), settings)).with_models(cluster(slos_ms, 16, Delays::default()))
}

/// The GPU of the only order.
fn gpu_of(orders: &[super::Order]) -> u32 {
    match orders {
        [Execute(_, gpu, ..)] => *gpu,
        other => panic!("one plan was expected: {other:?}"),
    }
}

#[test]
fn one_frontend_goes_round_the_replicas_whether_they_are_busy_or_not() {
    let mut host = nexus(&[30], NexusSettings::default()).with_gpus(&[ms(0), ms(0)]);
    let first = gpu_of(&host.arrive(ms(0), 0, 1, ms(30)));
    assert_eq!(gpu_of(&host.arrive(ms(1), 0, 2, ms(31))), 1 - first);
    // The other one is free at 6, this one is asked all the same.
    assert_eq!(host.arrive(ms(6), 0, 3, ms(36)), []);
    host.done(ms(6), 1 - first, 0);
    assert_eq!(host.policy.waiting(), 1);
}

#[test]
fn frontends_that_know_nothing_of_each_other_collide() {
    let mut collisions = 0;
    for seed in 0..20 {
        let settings = NexusSettings { frontends: 8, seed };
        let mut host = nexus(&[30], settings).with_gpus(&[ms(0); 4]);
        (0..4).for_each(|sequence| collisions += usize::from(host.arrive(ms(0), 0, sequence, ms(30)).is_empty()));
    }
    assert!(collisions > 10, "{collisions} of 80 found their GPU busy");
}

#[test]
fn without_early_drop_the_oldest_decides_the_batch_until_it_is_lost() {
    let policy = Nexus::new(&facts(), NexusSettings::default()).dropping_lazily();
    let models = cluster(&[30], 16, Delays::default());
    let mut host = Host::new(policy).with_models(models).with_gpus(&[ms(0)]);
    host.arrive(ms(0), 0, 0, ms(30));
    for sequence in 1..=12 {
        let deadline = if sequence <= 2 { ms(20) } else { ms(35) };
        assert_eq!(host.arrive(ms(0), 0, sequence, deadline), []);
    }
    // 6 + ℓ(9) = 20.
    assert_eq!(host.done(ms(6), 0, 0), [Execute(0, 0, ms(6), ms(20), (1..=9).collect())]);
}

#[test]
fn a_gpu_runs_batches_of_half_the_slo_and_drops_heads_that_would_force_smaller_ones() {
    // 2·ℓ(10) = 30: ten at a time.
    let mut host = nexus(&[30], NexusSettings::default()).with_gpus(&[ms(0)]);
    host.arrive(ms(0), 0, 0, ms(30));
    for sequence in 1..=12 {
        let deadline = if sequence <= 2 { ms(20) } else { ms(35) };
        assert_eq!(host.arrive(ms(0), 0, sequence, deadline), []);
    }
    // A batch of ten ends at 21: the first two could have run in a smaller one, and are dropped for the rest.
    let orders = host.done(ms(6), 0, 0);
    let batch = Execute(0, 0, ms(6), ms(21), (3..=12).collect());
    assert_eq!(orders, [Drop(1, "protect_batch"), Drop(2, "protect_batch"), batch]);
    // Without work the GPU idles until some arrives.
    assert_eq!(host.done(ms(21), 0, 0), []);
    assert_eq!(host.arrive(ms(22), 0, 13, ms(52)), [Execute(0, 0, ms(22), ms(28), vec![13])]);
}

#[test]
fn models_on_one_gpu_take_turns_and_nobody_waits_for_an_empty_queue() {
    let mut host = nexus(&[40, 40, 40], NexusSettings::default()).with_gpus(&[ms(0)]);
    host.arrive(ms(0), 1, 1, ms(40));
    for (model, sequence) in [(1, 2), (0, 3), (0, 4)] {
        host.arrive(ms(1), model, sequence, ms(41));
    }
    // Whose turn it is follows from the packing; both have theirs.
    let turns: Vec<_> = [ms(6), ms(20)].map(|now| host.done(now, 0, 0)).into_iter().flatten().collect();
    let models: Vec<_> = turns.iter().map(|order| if let Execute(model, ..) = order { *model } else { 9 }).collect();
    assert!(models == [0, 1] || models == [1, 0], "{turns:?}");
}

#[test]
fn requests_of_a_failed_gpu_find_another_and_without_any_they_wait_for_one() {
    let mut host = nexus(&[60], NexusSettings::default()).with_gpus(&[ms(0), ms(0)]);
    (0..6).for_each(|sequence| drop(host.arrive(ms(0), 0, sequence, ms(60))));
    assert_eq!(host.policy.waiting(), 4);
    host.step(ms(1), ClusterInput::GpuDown(GpuId::new(0)));
    assert_eq!(host.policy.waiting(), 4);
    let Execute(_, 1, _, _, batch) = &host.done(ms(6), 1, 0)[0] else { panic!("the other GPU goes on") };
    assert_eq!(batch.len(), 4);
    host.arrive(ms(7), 0, 7, ms(67));
    let orders = host.step(ms(8), ClusterInput::GpuDown(GpuId::new(1)));
    assert_eq!(orders, [WakeAt(after(ms(61)))], "one item takes 6 ms");
    assert_eq!(host.arrive(ms(9), 0, 8, ms(69)), []);
    assert_eq!(host.policy.waiting(), 2);
    assert_eq!(host.wake(after(ms(61))), [Drop(7, "slo_unreachable"), WakeAt(after(ms(63)))]);
    let orders = host.up(ms(62), 0, 0, ms(62));
    assert_eq!(orders, [Execute(0, 0, ms(62), ms(68), vec![8]), WakeAt(Time::NEVER)]);
    assert_eq!(host.policy.waiting(), 0);
}

#[test]
fn rates_that_change_are_packed_once_when_a_request_comes() {
    let mut host = nexus(&[60, 60], NexusSettings::default()).with_gpus(&[ms(0), ms(0)]);
    (0..4).for_each(|sequence| drop(host.arrive(ms(0), 0, sequence, ms(60))));
    let waits = host.policy.waiting();
    let must_pack = |host: &Host<Nexus>| format!("{:?}", host.policy).contains("must_pack: true");
    let known = |rate| Arc::new(ClusterModel::clone(&cluster(&[60], 16, Delays::default())[0]).with_rate(rate));
    for (model, rate) in [(0, 500.0), (1, 1.0)] {
        assert_eq!(host.step(ms(1), ClusterInput::Model { model, known: known(rate) }), []);
        assert!(must_pack(&host) && host.policy.waiting() == waits, "what waits waits where it was");
    }
    host.arrive(ms(1), 1, 9, ms(61));
    assert!(!must_pack(&host) && host.policy.waiting() >= waits);
}

#[test]
fn each_class_gets_its_part_of_the_requests_and_its_own_batches() {
    // Three times as fast on the first class: three of four requests go there.
    let profile = |scale: f64| LatencyProfile::from_line(scale, 5.0 * scale, 8).unwrap();
    let profiles: ClassProfiles = [(0, 1.0), (1, 3.0)]
        .map(|(class, scale)| (GpuClass::new(class).unwrap(), profile(scale)))
        .into_iter()
        .collect();
    let model = ClusterModel::new(profiles, Nanos::from_millis(200)).with_rate(100.0);
    let mut host = Host::new(Nexus::new(&facts(), NexusSettings::default())).with_models(vec![Arc::new(model)]);
    host.up(ms(0), 0, 0, ms(0));
    host.up(ms(0), 1, 1, ms(0));
    let (mut fast, mut slow) = (0, 0);
    for turn in 0..40_u64 {
        let now = ms(100 * turn);
        match &host.arrive(now, 0, turn, ms(100 * turn + 200))[..] {
            [Execute(0, 0, start, end, _)] => {
                fast += 1;
                assert_eq!(end.since(*start), Nanos::from_millis(6));
            }
            [Execute(0, 1, start, end, _)] => {
                slow += 1;
                assert_eq!(end.since(*start), Nanos::from_millis(18));
            }
            other => panic!("one plan was expected: {other:?}"),
        }
        for gpu in 0..2 {
            host.done(ms(100 * turn + 50), gpu, 0);
        }
    }
    assert!((28..=32).contains(&fast) && slow == 40 - fast, "{fast} and {slow}");
}
