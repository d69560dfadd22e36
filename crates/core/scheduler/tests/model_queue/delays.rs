//! Delays that were measured, and plans that ended late.

use symphony_scheduler::{
    Candidate, DataDelay, DelaySource, Delays, ModelAction, ModelActions, ModelInput, ModelQueue, ModelQueueConfig,
    Overrun, Policy, PoolSignal,
};
use symphony_types::{LatencyProfile, Nanos, Time};

use super::{DATA_PER_ITEM, Host, SLO_MS, after, ms, offer, wanted_start};

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
    // D = 25, latest = 19: it starts once its input has arrived.
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
    // ℓ(1) = 6 leaves 19 of 25 ms: half of them are given to inputs. No larger batch would be given more, so the data
    // adds nothing.
    let (offered, given) = bound(DelaySource::Measured);
    assert_eq!(given, Nanos::from_micros(9_500));
    assert!(
        matches!(offered[0], ModelAction::Offer { candidate: Some(Candidate { batch: 1, frontrun, .. }), .. } if frontrun == ms(18)),
        "{offered:?}"
    );
    // A configured delay stands.
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
fn plans_that_end_late_move_the_window_earlier_by_at_most_a_quarter_of_the_slo() {
    let mut host = Host::symphony();
    assert_eq!(host.arrive(0, 1)[0], offer(0, 1, ms(18), ms(19), Nanos::ZERO));
    // Started 1 ms late and took a third longer than the 6 ms of the plan, as ℓ(1) = 6 ms and ℓ(2) = 7 ms may, too; an
    // early end makes up for nothing.
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
    let actions = host.step(ms(1), ModelInput::Pool(usual));
    assert!(
        matches!(actions[0], ModelAction::Offer { candidate: Some(Candidate { start, latest, .. }), .. }
            if (start, latest) == (ms(25) - Nanos::from_micros(10_500), ms(16))),
        "{actions:?}"
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
fn one_slow_plan_does_not_make_a_model_hopeless_that_has_little_time_to_spare() {
    // ℓ(1) = 21 ms of an SLO of 25 ms; the first plan takes three times as long.
    let profile = LatencyProfile::from_line(1.0, 20.0, 64).unwrap();
    let (delays, slo) = (Delays::default(), Nanos::from_millis(SLO_MS));
    let config = ModelQueueConfig { profiles: profile.into(), slo, policy: Policy::SYMPHONY, delays, requests_max: 9 };
    let mut host = Host { queue: ModelQueue::new(config), actions: ModelActions::default() };
    let predicted = Nanos::from_millis(21);
    host.step(ms(0), ModelInput::Done { start_late: Nanos::ZERO, latency: predicted.saturating_mul(3), predicted });
    assert!(wanted_start(&host.arrive(1, 1)).is_some());
}
