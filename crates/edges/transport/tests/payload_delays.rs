//! What is measured of payloads comes back as what plans give them, in virtual time: the objects that backends and
//! leads run.

use symphony_scheduler::{
    DataDelaySettings, DataDelays, DelaySource, Delays, ModelAction, ModelActions, ModelInput, ModelQueue,
    ModelQueueConfig, Policy, Request,
};
use symphony_transport::PayloadMeter;
use symphony_types::{BackendId, GpuClass, GpuId, LatencyProfile, Nanos, RequestId, Time};

const SLO: Nanos = Nanos::from_millis(50);
const ITEM_BYTES: u64 = 150_000;
const BATCHES: u64 = 20_000;
const BACKEND: BackendId = BackendId::new(1);

/// A network with some noise, and one pull in three hundred that takes much longer.
struct Network(u64);

impl Network {
    fn pull(&mut self, bytes: u64) -> Nanos {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let noise_us = (self.0 >> 40) % 100;
        let pause_us = if (self.0 >> 33).is_multiple_of(300) { 2_000 } else { 0 };
        Nanos::from_micros(150 + noise_us + pause_us + bytes * 800 / (1 << 20))
    }
}

/// How many plans of the second half start before their inputs have arrived, and the source of the last one's delay.
fn late(settings: DataDelaySettings) -> (usize, DelaySource) {
    let mut delays = DataDelays::new(settings);
    let (mut meter, mut network) = (PayloadMeter::default(), Network(7));
    let mut queue = ModelQueue::new(ModelQueueConfig {
        profiles: LatencyProfile::from_line(1.0, 5.0, 8).unwrap().into(),
        slo: SLO,
        policy: Policy::EAGER,
        delays: Delays { data: delays.of(ITEM_BYTES, SLO), ..Delays::default() },
        requests_max: 16,
    });
    let (mut late, mut by, mut actions) = (0, DelaySource::Configured, ModelActions::default());
    for batch in 0..BATCHES {
        let now = Time::ZERO + Nanos::from_millis(20).saturating_mul(batch + 1);
        actions.clear();
        for item in 0..=batch % 8 {
            let id = RequestId { sequence: batch * 8 + item, ..RequestId::default() };
            queue.step(
                now,
                ModelInput::Arrive(Request {
                    id,
                    deadline: now + SLO,
                    items: 1,
                    weight: symphony_types::RequestValue::ONE,
                    variant: 0,
                }),
                &mut actions,
            );
        }
        let (gpu, class, free_at) = (GpuId::new(1), GpuClass::FIRST, Time::ZERO);
        queue.step(now, ModelInput::Grant { gpu, class, free_at, why: Default::default() }, &mut actions);
        for action in &actions.list {
            let ModelAction::Execute(plan) = action else { continue };
            let bytes = u64::from(plan.batch) * ITEM_BYTES;
            let took = network.pull(bytes);
            late += usize::from(batch >= BATCHES / 2 && now + took > plan.start);
            by = plan.why.unwrap().inputs_by;
            meter.note(now, bytes, took);
        }
        if meter.delay(now).is_some_and(|delay| delays.record(now, BACKEND, delay)) {
            queue.set_data_delay(delays.of(ITEM_BYTES, SLO));
        }
    }
    (late, by)
}

#[test]
fn plans_wait_for_what_was_measured_and_not_for_what_somebody_set() {
    let (min, max) = (Nanos::from_micros(100), Nanos::from_millis(5));
    let limits = DataDelaySettings { per_item: None, min, max, ..DataDelaySettings::default() };
    let set = DataDelaySettings { per_item: Some(Nanos::from_micros(20)), ..limits };
    let half = (BATCHES / 2) as usize;
    assert_eq!(late(set), (half, DelaySource::Configured), "20 µs an item are never enough here");
    let (late, by) = late(limits);
    assert_eq!(by, DelaySource::Measured);
    assert!(late * 1000 <= half, "{late} of {half}");
}

/// Reads of 1 to 200 KB, a thousandth of them slower by two milliseconds: what a model with items of a megabyte would
/// be given by them.
#[test]
fn the_noise_of_small_reads_is_not_multiplied_for_large_ones() {
    let (mut meter, mut network, mut longest) = (PayloadMeter::default(), Network(3), Nanos::ZERO);
    for read in 0..BATCHES {
        let now = Time::ZERO + Nanos::from_millis(20).saturating_mul(read);
        let bytes = 1_000 << (read % 8);
        meter.note(now, bytes, network.pull(bytes));
        longest = longest.max(meter.delay(now).map_or(Nanos::ZERO, |delay| delay.of(1 << 20)));
    }
    assert!(longest > Nanos::from_micros(150) && longest < Nanos::from_millis(3), "{longest}");
}
