//! Requests of unequal size on a fast and a slow GPU: what `kairos`, `ribbon`, `drs` and `clkwrk` do with the same
//! ones.
//!
//! The fast class takes 4.5 ms for one item, 8.5 for nine and 9 for ten; the slow one 4, 20 and 22. So C of the slow
//! class is 9/22, and its time counts 1.6, 8.2 and 9 ms.

use std::sync::Arc;

use symphony_scheduler::rivals::{Clkwrk, Drs, Kairos, KairosSettings, Ribbon};
use symphony_scheduler::{ClusterInput, ClusterModel, ClusterPolicy, Request};
use symphony_types::{GpuClass, GpuId, LatencyProfile, Nanos, Time};

use super::Order::{Drop, Execute, WakeAt};
use super::{Host, Order, after, facts, ms, request};

const FAST: u32 = 0;
const SLOW: u32 = 1;

fn model(slo_ms: u64) -> Arc<ClusterModel> {
    let profile = |alpha_ms, beta_ms| LatencyProfile::from_line(alpha_ms, beta_ms, 10).unwrap();
    let profiles = GpuClass::all().zip([profile(0.5, 4.0), profile(2.0, 2.0)]);
    Arc::new(ClusterModel::new(profiles.collect::<symphony_scheduler::ClassProfiles>(), Nanos::from_millis(slo_ms)))
}

/// One model on the fast and the slow GPU, both idle.
fn host<P: ClusterPolicy>(policy: P, slo_ms: u64) -> Host<P> {
    let mut host = Host::new(policy).with_models(vec![model(slo_ms)]);
    for gpu in [FAST, SLOW] {
        assert_eq!(host.up(Time::ZERO, gpu, gpu as usize, Time::ZERO), []);
    }
    host
}

fn kairos(slo_ms: u64) -> Host<Kairos> {
    host(Kairos::new(&facts(), KairosSettings::default()), slo_ms)
}

impl<P: ClusterPolicy> Host<P> {
    fn query(&mut self, now: Time, sequence: u64, items: u32, deadline: Time) -> Vec<Order> {
        let request = Request { items, ..request(sequence, deadline) };
        self.step(now, ClusterInput::Arrive { model: 0, request })
    }

    fn took(&mut self, now: Time, gpu: u32, start: Time) -> Vec<Order> {
        let (gpu, latency) = (GpuId::new(gpu), now.since(start));
        self.step(now, ClusterInput::Done { gpu, model: 0, start, start_late: Nanos::ZERO, latency })
    }
}

#[test]
fn kairos_leaves_the_fast_gpu_to_the_request_that_gains_by_it() {
    let mut host = kairos(20);
    assert_eq!(host.query(ms(0), 1, 1, ms(20)), [Execute(0, SLOW, ms(0), ms(4), vec![1])]);
    assert_eq!(host.query(ms(0), 2, 10, ms(20)), [Execute(0, FAST, ms(0), ms(9), vec![2])]);
    // In time on the fast GPU only, and after what runs there.
    assert_eq!(host.query(ms(0), 3, 10, ms(20)), [WakeAt(ms(4))]);
    assert_eq!(host.done(ms(4), SLOW, 0), [WakeAt(ms(9))], "the slow GPU stays idle");
    assert_eq!(host.done(ms(9), FAST, 0), [Execute(0, FAST, ms(9), ms(18), vec![3]), WakeAt(Time::NEVER)]);
}

#[test]
fn kairos_takes_what_ends_within_two_percent_of_the_target_for_late() {
    // Nine items end at 20 ms on the slow GPU, whose time is cheaper.
    assert_eq!(kairos(20).query(ms(0), 1, 9, ms(20)), [Execute(0, FAST, ms(0), after_micros(8_500), vec![1])]);
    assert_eq!(kairos(21).query(ms(0), 1, 9, ms(21)), [Execute(0, SLOW, ms(0), ms(20), vec![1])]);
    // Where there is no other way it is tried.
    let mut host = kairos(20);
    host.step(ms(0), ClusterInput::GpuDown(GpuId::new(FAST)));
    assert_eq!(host.query(ms(0), 1, 9, ms(20)), [Execute(0, SLOW, ms(0), ms(20), vec![1])]);
}

fn after_micros(micros: u64) -> Time {
    Time::ZERO + Nanos::from_micros(micros)
}

#[test]
fn kairos_drops_what_not_even_an_idle_gpu_could_end_in_time_and_orders_the_rest_by_deadline() {
    let mut host = kairos(20);
    assert_eq!(host.query(ms(0), 1, 10, ms(8)), [Drop(1, "slo_unreachable")]);
    for gpu in [FAST, SLOW] {
        host.step(ms(0), ClusterInput::GpuDown(GpuId::new(gpu)));
    }
    // Without a GPU they wait as long as one might come.
    assert_eq!(host.query(ms(0), 2, 10, ms(20)), [WakeAt(after(ms(11)))]);
    assert_eq!(host.query(ms(0), 3, 10, ms(10)), [WakeAt(after(ms(1)))]);
    assert_eq!(host.wake(after(ms(1))), [Drop(3, "slo_unreachable"), WakeAt(after(ms(11)))]);
    assert_eq!(host.up(ms(2), FAST, 0, ms(2)), [Execute(0, FAST, ms(2), ms(11), vec![2]), WakeAt(Time::NEVER)]);
    assert_eq!(host.policy.waiting(), 0);
}

#[test]
fn kairos_goes_by_what_it_has_learnt_where_it_is_not_to_believe_profiles() {
    assert_eq!(kairos(60).query(ms(50), 3, 9, ms(75)), [Execute(0, SLOW, ms(50), ms(70), vec![3])]);
    let mut host = host(Kairos::new(&facts(), KairosSettings { learn: true }), 60);
    // What is not known is tried.
    assert_eq!(host.query(ms(0), 1, 10, ms(60)), [Execute(0, FAST, ms(0), ms(9), vec![1])]);
    assert_eq!(host.took(ms(9), FAST, ms(0)), []);
    assert_eq!(host.query(ms(10), 2, 10, ms(70)), [Execute(0, SLOW, ms(10), ms(32), vec![2])]);
    assert_eq!(host.took(ms(40), SLOW, ms(10)), [], "30 ms, not 22");
    assert_eq!(
        host.query(ms(50), 3, 9, ms(75)),
        [Execute(0, FAST, ms(50), ms(50) + Nanos::from_micros(8_500), vec![3])]
    );
}

#[test]
fn ribbon_gives_the_fast_gpu_to_whoever_comes_first() {
    let mut host = host(Ribbon::new(&facts()), 20);
    assert_eq!(host.query(ms(0), 1, 1, ms(20)), [Execute(0, FAST, ms(0), after_micros(4_500), vec![1])]);
    assert_eq!(host.query(ms(0), 2, 10, ms(20)), [Drop(2, "protect_batch")], "late on the slow one");
    assert_eq!(host.query(ms(0), 3, 1, ms(20)), [Execute(0, SLOW, ms(0), ms(4), vec![3])]);
    assert_eq!(host.query(ms(0), 4, 1, ms(20)), [WakeAt(ms(4))]);
    assert_eq!(host.done(ms(4), SLOW, 0), [Execute(0, SLOW, ms(4), ms(8), vec![4]), WakeAt(Time::NEVER)]);
}

#[test]
fn drs_parts_requests_by_their_size() {
    let mut host = host(Drs::new(&facts(), Some(5)), 20);
    assert_eq!(host.query(ms(0), 1, 5, ms(20)), [Execute(0, SLOW, ms(0), ms(12), vec![1])]);
    assert_eq!(host.query(ms(0), 2, 6, ms(20)), [Execute(0, FAST, ms(0), ms(7), vec![2])]);
    // A small one waits although the fast GPU is free before.
    assert_eq!(host.query(ms(0), 3, 1, ms(20)), [WakeAt(ms(12))]);
    assert_eq!(host.done(ms(7), FAST, 0), []);
    assert_eq!(host.done(ms(12), SLOW, 0), [Execute(0, SLOW, ms(12), ms(16), vec![3]), WakeAt(Time::NEVER)]);
}

#[test]
fn drs_gives_the_other_side_what_its_own_does_not_take() {
    let mut host = host(Drs::new(&facts(), Some(5)), 20);
    host.step(ms(0), ClusterInput::GpuDown(GpuId::new(SLOW)));
    assert_eq!(host.query(ms(0), 1, 1, ms(20)), [Execute(0, FAST, ms(0), after_micros(4_500), vec![1])]);
}

#[test]
fn clkwrk_commits_each_request_to_the_queue_where_it_ends_first() {
    let mut host = host(Clkwrk::new(&facts()), 20);
    assert_eq!(host.query(ms(0), 1, 1, ms(20)), [Execute(0, SLOW, ms(0), ms(4), vec![1])]);
    assert_eq!(host.query(ms(0), 2, 10, ms(20)), [Execute(0, FAST, ms(0), ms(9), vec![2])]);
    assert_eq!(host.query(ms(0), 3, 10, ms(20)), [WakeAt(ms(9))], "18 ms on the fast GPU");
    assert_eq!(host.query(ms(0), 4, 10, ms(20)), [Drop(4, "slo_unreachable")], "27 and 26 ms");
    // The fast GPU ends late: now the third is late everywhere.
    assert_eq!(host.done(ms(12), FAST, 0), [Drop(3, "slo_unreachable"), WakeAt(Time::NEVER)]);
}

#[test]
fn clkwrk_keeps_what_no_gpu_runs_until_one_comes_or_it_is_lost() {
    let mut host = Host::new(Clkwrk::new(&facts())).with_models(vec![model(20)]);
    assert_eq!(host.query(ms(0), 1, 10, ms(20)), [WakeAt(after(ms(11)))]);
    assert_eq!(host.query(ms(0), 2, 1, ms(30)), []);
    assert_eq!(host.policy.waiting(), 2);
    assert_eq!(host.wake(after(ms(11))), [Drop(1, "slo_unreachable"), WakeAt(after(ms(26)))]);
    let orders = host.up(ms(12), SLOW, SLOW as usize, ms(12));
    assert_eq!(orders, [Execute(0, SLOW, ms(12), ms(16), vec![2]), WakeAt(Time::NEVER)]);
    assert_eq!(host.policy.waiting(), 0);
}
