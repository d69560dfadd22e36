use std::sync::Arc;

use symphony_scheduler::rivals::{Clockwork, ClockworkSettings};
use symphony_scheduler::{ClassProfiles, ClusterInput, ClusterModel, DataDelay, Delays};
use symphony_types::{GpuClass, LatencyProfile, Nanos, Time};

use super::Order::{Drop, Execute, WakeAt};
use super::{Host, after, cluster, facts, ms, request};

/// Five milliseconds ahead, deadlines five milliseconds early.
const SETTINGS: ClockworkSettings = ClockworkSettings { commit: Nanos::from_millis(5), early: Nanos::from_millis(5) };

fn clockwork(slos_ms: &[u64]) -> Host<Clockwork> {
    Host::new(Clockwork::new(&facts(), SETTINGS)).with_models(cluster(slos_ms, 8, Delays::default()))
}

#[test]
fn a_gpu_with_less_than_five_milliseconds_ahead_gets_more_work() {
    let mut host = clockwork(&[25]).with_gpus(&[ms(0)]);
    assert_eq!(host.arrive(ms(0), 0, 1, ms(25)), [Execute(0, 0, ms(0), ms(6), vec![1])]);
    // Six milliseconds are enough for now; from 1 ms on they are less than five.
    assert_eq!(host.arrive(ms(0), 0, 2, ms(25)), [WakeAt(after(ms(1)))]);
    assert_eq!(host.wake(after(ms(1))), [Execute(0, 0, ms(6), ms(12), vec![2])]);
    assert_eq!(host.done(ms(6), 0, 0), []);
}

#[test]
fn the_largest_full_batch_goes_and_those_before_it_are_lost() {
    let mut host = clockwork(&[25]).with_gpus(&[ms(10)]);
    // Meant to end by 17: it could ride in a batch of two (17), not of three (18).
    assert_eq!(host.arrive(ms(0), 0, 1, ms(22)), [WakeAt(after(ms(5)))]);
    for sequence in 2..5 {
        assert_eq!(host.arrive(ms(0), 0, sequence, ms(40)), []);
    }
    let batch = Execute(0, 0, ms(10), ms(18), vec![2, 3, 4]);
    assert_eq!(host.wake(after(ms(5))), [Drop(1, "protect_batch"), batch]);
}

#[test]
fn the_most_urgent_strategy_chooses_the_model() {
    let mut host = clockwork(&[50, 50]).with_gpus(&[ms(20)]);
    host.arrive(ms(0), 0, 1, ms(60));
    host.arrive(ms(0), 1, 2, ms(50));
    host.arrive(ms(0), 1, 3, ms(52));
    // Model 1: its oldest must start by 50 − 5 − ℓ(2) = 38; model 0: by 60 − 5 − ℓ(1) = 49.
    let first = host.wake(after(ms(15)));
    assert_eq!(first[0], Execute(1, 0, ms(20), ms(27), vec![2, 3]));
    assert_eq!(first[1..], [WakeAt(after(ms(22)))]);
    assert_eq!(host.wake(after(ms(22))), [Execute(0, 0, ms(27), ms(33), vec![1])]);
}

#[test]
fn requests_that_no_gpu_can_meet_are_dropped_when_that_is_certain() {
    let mut host = clockwork(&[25]);
    // Meant to end by 20, so it must start by 14.
    assert_eq!(host.arrive(ms(0), 0, 1, ms(25)), [WakeAt(after(ms(14)))]);
    assert_eq!(host.wake(after(ms(14))), [Drop(1, "protect_batch")]);
    assert_eq!(host.arrive(ms(20), 0, 2, ms(21)), [Drop(2, "slo_unreachable")]);
}

#[test]
fn a_short_slo_keeps_what_the_margin_would_take() {
    // 12 − 5 leaves 7, less than the 10 that look-ahead and margin need together: two come off instead.
    let mut host = clockwork(&[12]);
    assert_eq!(host.arrive(ms(0), 0, 1, ms(12)), [WakeAt(after(ms(4)))]);
}

#[test]
fn plans_leave_in_time_for_their_inputs() {
    let data = DataDelay::each_item(Nanos::from_millis(1));
    let delays = Delays { control: Nanos::from_millis(1), data, ..Delays::default() };
    let host = Host::new(Clockwork::new(&facts(), SETTINGS)).with_models(cluster(&[40], 8, delays));
    let mut host = host.with_gpus(&[ms(0)]);
    assert_eq!(host.arrive(ms(0), 0, 1, ms(40)), [Execute(0, 0, ms(2), ms(8), vec![1])]);
}

/// ℓ(b) = b + 5 ms on the first class, b + 20 ms on the second.
fn two_classes() -> Host<Clockwork> {
    let profile = |beta_ms| LatencyProfile::from_line(1.0, beta_ms, 8).unwrap();
    let profiles: ClassProfiles = [(0, 5.0), (1, 20.0)]
        .map(|(class, beta_ms)| (GpuClass::new(class).unwrap(), profile(beta_ms)))
        .into_iter()
        .collect();
    let model = ClusterModel::new(profiles, Nanos::from_millis(60));
    Host::new(Clockwork::new(&facts(), SETTINGS)).with_models(vec![Arc::new(model)])
}

#[test]
fn each_gpu_is_planned_by_its_class_and_what_only_a_faster_one_meets_waits_for_it() {
    let mut host = two_classes();
    assert_eq!(host.up(Time::ZERO, 0, 0, ms(10)), []);
    assert_eq!(host.up(Time::ZERO, 1, 1, ms(0)), []);
    // Meant to end by 20: only the first GPU can, from 10 ms on. It is asked again when it has room.
    assert_eq!(host.arrive(ms(0), 0, 1, ms(25)), [WakeAt(after(ms(5)))]);
    let slow = host.arrive(ms(0), 0, 2, ms(60));
    assert_eq!(slow, [Execute(0, 1, ms(0), ms(21), vec![2])], "the slow one takes what it can meet and loses nothing");
    assert_eq!(host.wake(after(ms(5)))[0], Execute(0, 0, ms(10), ms(16), vec![1]));
}

#[test]
fn what_is_cancelled_or_of_a_model_that_has_gone_is_forgotten() {
    let mut host = clockwork(&[50, 50]);
    for (model, sequence) in [(0, 1), (0, 2), (1, 3)] {
        host.arrive(ms(0), model, sequence, ms(50));
    }
    host.step(ms(1), ClusterInput::Cancel { model: 0, request: request(1, ms(50)) });
    assert_eq!(symphony_scheduler::ClusterPolicy::waiting(&host.policy), 2);
    host.step(ms(1), ClusterInput::ModelGone(1));
    assert_eq!(symphony_scheduler::ClusterPolicy::waiting(&host.policy), 1);
    assert_eq!(host.up(ms(2), 0, 0, ms(2))[0], Execute(0, 0, ms(2), ms(8), vec![2]));
    assert_eq!(host.arrive(ms(3), 1, 4, ms(53)), [Drop(4, "slo_unreachable")]);
}
