use symphony_scheduler::rivals::{Shepherd, ShepherdSettings};
use symphony_scheduler::{ClusterFacts, Delays};
use symphony_types::{Nanos, Time};

use super::Order::{Drop, Execute, Preempt, WakeAt};
use super::{Host, after, cluster, facts, ms};

const SETTINGS: ShepherdSettings = ShepherdSettings { preempt_factor: 3.0 };

fn shepherd(slos_ms: &[u64], batch_max: u32) -> Host<Shepherd> {
    Host::new(Shepherd::new(&facts(), SETTINGS)).with_models(cluster(slos_ms, batch_max, Delays::default()))
}

#[test]
fn idle_gpus_take_what_arrives_and_then_the_largest_batch_of_all_models() {
    let mut host = shepherd(&[50, 50], 8).with_gpus(&[ms(0)]);
    assert_eq!(host.arrive(ms(0), 0, 1, ms(50)), [Execute(0, 0, ms(0), ms(6), vec![1])]);
    host.arrive(ms(1), 0, 2, ms(51));
    host.arrive(ms(2), 1, 3, ms(52));
    host.arrive(ms(3), 1, 4, ms(53));
    let next = host.done(ms(6), 0, 0);
    assert_eq!(next[0], Execute(1, 0, ms(6), ms(13), vec![3, 4]), "two are more than one, although one is older");
    assert_eq!(host.done(ms(13), 0, 1)[0], Execute(0, 0, ms(13), ms(19), vec![2]));
}

#[test]
fn a_batch_three_times_as_large_preempts_and_the_preempted_start_over() {
    let mut host = shepherd(&[50, 50], 8).with_gpus(&[ms(0)]);
    host.arrive(ms(0), 0, 1, ms(50));
    host.arrive(ms(1), 1, 2, ms(51));
    host.arrive(ms(2), 1, 3, ms(52));
    let third = host.arrive(ms(3), 1, 4, ms(53));
    assert_eq!(third[..2], [Preempt(0), Execute(1, 0, ms(3), ms(11), vec![2, 3, 4])]);
    assert_eq!(host.done(ms(11), 0, 1)[0], Execute(0, 0, ms(11), ms(17), vec![1]));
}

#[test]
fn a_model_preempts_its_own_batch_and_takes_it_along() {
    let mut host = shepherd(&[50], 8).with_gpus(&[ms(0)]);
    host.arrive(ms(0), 0, 1, ms(50));
    host.arrive(ms(1), 0, 2, ms(51));
    let third = host.arrive(ms(2), 0, 3, ms(52));
    assert_eq!(third[..2], [Preempt(0), Execute(0, 0, ms(2), ms(10), vec![1, 2, 3])]);
}

#[test]
fn a_preempted_request_without_time_to_start_over_is_lost() {
    let mut host = shepherd(&[8, 50], 8).with_gpus(&[ms(0)]);
    host.arrive(ms(0), 0, 1, ms(8));
    host.arrive(ms(3), 1, 2, ms(53));
    host.arrive(ms(3), 1, 3, ms(53));
    let third = host.arrive(ms(3), 1, 4, ms(53));
    let batch = Execute(1, 0, ms(3), ms(11), vec![2, 3, 4]);
    assert_eq!(third, [Preempt(0), batch, Drop(1, "slo_unreachable"), WakeAt(Time::NEVER)]);
}

#[test]
fn every_request_of_a_batch_is_met_so_the_oldest_decides_its_size() {
    let mut host = shepherd(&[50], 8).with_gpus(&[ms(10)]);
    // GPUs that come later are fed from what waits. The first one rides with one other, not with two.
    assert_eq!(host.arrive(ms(0), 0, 1, ms(17))[0], Execute(0, 0, ms(10), ms(16), vec![1]));
    let mut host = shepherd(&[50], 8);
    host.arrive(ms(0), 0, 1, ms(17));
    host.arrive(ms(0), 0, 2, ms(40));
    host.arrive(ms(0), 0, 3, ms(40));
    let up = host.up(ms(1), 0, 0, ms(10));
    assert_eq!(up[0], Execute(0, 0, ms(10), ms(17), vec![1, 2]));
}

#[test]
fn requests_that_no_gpu_can_meet_are_dropped_when_that_is_certain() {
    let mut host = shepherd(&[25], 8);
    assert_eq!(host.arrive(ms(0), 0, 1, ms(25)), [WakeAt(after(ms(19)))]);
    assert_eq!(host.wake(after(ms(19))), [Drop(1, "slo_unreachable")]);
}

#[test]
fn with_a_control_delay_the_next_batch_is_sent_before_the_last_one_ends() {
    let delays = Delays { control: Nanos::from_millis(1), ..Delays::default() };
    let host = Host::new(Shepherd::new(&facts(), SETTINGS)).with_models(cluster(&[50], 8, delays));
    let mut host = host.with_gpus(&[ms(0)]);
    assert_eq!(host.arrive(ms(0), 0, 1, ms(50)), [Execute(0, 0, ms(1), ms(7), vec![1]), WakeAt(ms(6))]);
    host.arrive(ms(2), 0, 2, ms(52));
    assert_eq!(host.wake(ms(6)), [Execute(0, 0, ms(7), ms(13), vec![2]), WakeAt(ms(12))]);
    assert_eq!(host.done(ms(7), 0, 0), []);
}

#[test]
fn where_batches_cannot_be_stopped_none_is() {
    let host = Host::new(Shepherd::new(&ClusterFacts::default(), SETTINGS));
    let mut host = host.with_models(cluster(&[50, 50], 8, Delays::default())).with_gpus(&[ms(0)]);
    host.arrive(ms(0), 0, 1, ms(50));
    for sequence in 2..6 {
        let orders = host.arrive(ms(1), 1, sequence, ms(51));
        assert!(orders.iter().all(|order| matches!(order, WakeAt(_))), "{orders:?}");
    }
    assert_eq!(host.done(ms(6), 0, 0)[0], Execute(1, 0, ms(6), ms(15), vec![2, 3, 4, 5]));
}
