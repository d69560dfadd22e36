//! The autoscaler in a loop with a cluster that serves what it can: it follows the load, keeps its limits, and does not
//! flap.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_controllers::{Advice, Autoscaler, AutoscalerSettings, KindSettings, KindWindow, Reason, Window};
use symphony_types::{GpuId, Nanos, Time};

const SECOND: Nanos = Nanos::from_millis(1_000);
const GPUS_MAX: u32 = 1_000;
/// From an order to a GPU that serves, in seconds.
const PROVISION_S: usize = 10;

/// GPUs of one kind with the properties of the Symphony paper, section 4.4: what is more than they serve is bad, what
/// is less idles.
struct Cluster {
    scaler: Autoscaler,
    second: u64,
    serving: BTreeSet<GpuId>,
    /// Orders by the second in which they arrive.
    orders: Vec<u64>,
}

impl Cluster {
    fn new(gpus: u32, settings: AutoscalerSettings) -> Self {
        let scaler = Autoscaler::new(settings).unwrap();
        Self { scaler, second: 0, serving: (0..gpus).map(GpuId::new).collect(), orders: Vec::new() }
    }

    fn default(gpus: u32) -> Self {
        Self::new(gpus, AutoscalerSettings::new(vec![KindSettings { min: 1, max: GPUS_MAX, capacity: 1.0 }]))
    }

    /// A second in which `load` GPUs' worth of requests arrive, a thousand for each.
    fn second(&mut self, load: f64) -> Advice {
        self.second += 1;
        let arrived = self.orders.iter().filter(|&&at| at <= self.second).count();
        self.orders.retain(|&at| at > self.second);
        let free = (0..).map(GpuId::new).filter(|gpu| !self.serving.contains(gpu));
        let arriving: Vec<_> = free.take(arrived).collect();
        self.serving.extend(arriving);
        let gpus = self.serving.len() as f64;
        let (served, lost) = (load.min(gpus), (load - gpus).max(0.0));
        let kind = KindWindow {
            serving: self.serving.iter().copied().collect(),
            ordered: self.orders.len() as u32,
            gpu_time: SECOND.saturating_mul(self.serving.len() as u64),
            busy_time: Nanos::from_secs_f64(served),
        };
        let (good, bad) = ((served * 1e3) as u64, (lost * 1e3) as u64);
        let window = Window { length: SECOND, good, bad, kinds: vec![kind] };
        let advice = self.scaler.observe(Time::ZERO + SECOND.saturating_mul(self.second), &window);
        let order = &advice.kinds[0];
        for _ in 0..order.add {
            self.orders.push(self.second + PROVISION_S as u64);
        }
        self.orders.truncate(self.orders.len() - order.cancel as usize);
        for gpu in &order.release {
            self.serving.remove(gpu);
        }
        advice
    }

    fn there(&self) -> usize {
        self.serving.len() + self.orders.len()
    }
}

#[test]
fn a_step_up_is_answered_at_once_and_a_step_down_slowly() {
    let mut cluster = Cluster::default(50);
    (0..100).for_each(|_| drop(cluster.second(47.0)));
    assert_eq!(cluster.there(), 50);
    (0..2 * PROVISION_S).for_each(|_| drop(cluster.second(90.0)));
    assert!((94..=97).contains(&cluster.serving.len()), "{} GPUs", cluster.serving.len());
    let first = (0..300).find(|_| cluster.second(46.0).releases()).unwrap();
    assert!(first >= 59 - 2 * PROVISION_S, "released after {first} s");
    (0..300).for_each(|_| drop(cluster.second(46.0)));
    assert!((48..=50).contains(&cluster.there()), "{} GPUs", cluster.there());
}

#[test]
fn a_load_that_wobbles_around_any_level_comes_to_rest() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    for level in [1.3, 3.0, 10.0, 48.0, 200.0] {
        let mut cluster = Cluster::default(100);
        let mut load = || level * rng.random_range(0.98..1.02);
        (0..900).for_each(|_| drop(cluster.second(load())));
        let rested = cluster.there();
        for second in 0..3_600 {
            let advice = cluster.second(load());
            assert!(!advice.changes(), "at {level} GPUs' load, {rested} GPUs, after {second} s: {advice:?}");
        }
        let ideal = (level * 1.02).ceil();
        assert!((rested as f64) >= ideal && (rested as f64) <= 1.15 * ideal + 1.0, "{rested} GPUs for {level}");
    }
}

#[test]
fn a_slow_rise_loses_nothing() {
    let mut cluster = Cluster::default(50);
    (0..100).for_each(|_| drop(cluster.second(46.0)));
    let mut worst = 0.0_f64;
    for second in 0..1_200 {
        // Doubles in twenty minutes.
        let advice = cluster.second(46.0 * (1.0 + f64::from(second) / 1_200.0));
        worst = worst.max(advice.bad_rate);
    }
    assert_eq!(worst, 0.0);
}

#[test]
fn without_damping_the_same_load_flaps() {
    // The planted fault: the same loop without windows, bands and pauses is what the tests above would not accept.
    let kinds = vec![KindSettings { min: 1, max: GPUS_MAX, capacity: 1.0 }];
    let hasty = AutoscalerSettings {
        reserve_min: 0.05,
        release_band: 0.0,
        up_window: SECOND,
        down_window: SECOND,
        down_after_up: Nanos::ZERO,
        up_after_down: Nanos::ZERO,
        down_step_max: 1.0,
        down_period: Nanos::ZERO,
        ..AutoscalerSettings::new(kinds)
    };
    let mut cluster = Cluster::new(100, hasty);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut load = || 48.0 * rng.random_range(0.98..1.02);
    (0..900).for_each(|_| drop(cluster.second(load())));
    let changes = (0..3_600).filter(|_| cluster.second(load()).changes()).count();
    assert!(changes > 100, "{changes} changes in an hour");
}

/// Loads that hold for a while, jump, and wobble.
fn loads() -> impl Strategy<Value = Vec<(f64, usize, u64)>> {
    prop::collection::vec((0.0_f64..400.0, 1_usize..120, any::<u64>()), 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_the_load_does_ups_and_downs_keep_their_distance(phases in loads(), min in 1_u32..20) {
        let kinds = vec![KindSettings { min, max: 300, capacity: 1.0 }];
        let settings = AutoscalerSettings::new(kinds);
        let mut cluster = Cluster::new(50, settings.clone());
        let (mut last_up, mut last_down) = (None, None);
        for (level, seconds, seed) in phases {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            for _ in 0..seconds {
                let (before, serving) = (cluster.there(), cluster.serving.len());
                let advice = cluster.second(level * rng.random_range(0.9..1.1));
                let order = &advice.kinds[0];
                prop_assert!((min as usize..=300).contains(&cluster.there()));
                prop_assert_eq!(order.target as usize, cluster.there());
                prop_assert_eq!(before + order.add as usize - order.cancel as usize - order.release.len(), cluster.there());
                // One thing at a time.
                prop_assert!(!(advice.adds() && (advice.releases() || order.cancel > 0)));
                let since = |last: Option<u64>| last.map(|at| SECOND.saturating_mul(cluster.second - at));
                if advice.adds() {
                    let rested = since(last_down).is_none_or(|since| since >= settings.up_after_down);
                    prop_assert!(rested || advice.reason == Reason::BadRate, "up after down: {:?}", advice);
                    prop_assert!(cluster.orders.len() <= serving.max(cluster.serving.len()).max(1));
                    last_up = Some(cluster.second);
                }
                if advice.releases() || order.cancel > 0 {
                    prop_assert!(since(last_up).is_none_or(|since| since >= settings.down_after_up), "down after up");
                    prop_assert!(since(last_down).is_none_or(|since| since >= settings.down_period), "down after down");
                    let left = cluster.serving.last();
                    prop_assert!(order.release.iter().all(|gpu| left.is_none_or(|left| gpu > left)));
                    let share = (order.release.len() + order.cancel as usize) as f64 / before as f64;
                    prop_assert!(share <= settings.down_step_max + 1.0 / before as f64);
                    last_down = Some(cluster.second);
                }
            }
        }
    }

    #[test]
    fn a_load_that_holds_is_met_and_then_left_alone(from in 0.0_f64..250.0, to in 1.0_f64..250.0) {
        let mut cluster = Cluster::default(40);
        (0..300).for_each(|_| drop(cluster.second(from)));
        // Up at most doubles with each provisioning; down takes a tenth every ten seconds.
        (0..900).for_each(|_| drop(cluster.second(to)));
        prop_assert!(cluster.serving.len() as f64 >= to);
        prop_assert!(cluster.serving.len() as f64 <= 1.12 * to + 2.0, "{} GPUs for {}", cluster.serving.len(), to);
        for _ in 0..300 {
            prop_assert!(!cluster.second(to).changes());
        }
    }

    #[test]
    fn nonsense_is_answered_within_the_limits(
        windows in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), 0_u32..40, any::<u32>(), any::<u64>(), any::<u64>(), any::<u64>()), 1..60)
    ) {
        let kinds = vec![KindSettings { min: 2, max: 30, capacity: 3.0 }, KindSettings { min: 0, max: 9, capacity: 0.1 }];
        let mut scaler = Autoscaler::new(AutoscalerSettings::new(kinds)).unwrap();
        for (now, good, bad, serving, ordered, length, gpu_time, busy_time) in windows {
            let kind = KindWindow {
                serving: (0..serving).map(GpuId::new).collect(),
                ordered: ordered >> (ordered % 32),
                gpu_time: Nanos::new(gpu_time),
                busy_time: Nanos::new(busy_time),
            };
            let there = kind.serving.len() as u64 + u64::from(kind.ordered);
            let window = Window { length: Nanos::new(length), good, bad, kinds: vec![kind] };
            let advice = scaler.observe(Time::from_nanos(now), &window);
            prop_assert_eq!(advice.kinds.len(), 2);
            let order = &advice.kinds[0];
            let after = there + u64::from(order.add) - u64::from(order.cancel) - order.release.len() as u64;
            prop_assert!((2..=30).contains(&after), "{} GPUs", after);
            prop_assert!(advice.bad_rate.is_finite() && advice.idle_fraction.is_finite() && !advice.pressure.is_nan());
        }
    }
}
