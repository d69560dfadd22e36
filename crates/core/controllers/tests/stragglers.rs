//! Slow GPUs are found, sound ones are left alone, and no more than allowed are ever out of use.

use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, LogNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_controllers::{GpuState, Quarantine, StragglerSettings, Stragglers};
use symphony_types::{GpuId, ModelId, Nanos, Time};

const GPUS: u32 = 16;
const MODELS: u32 = 4;

fn at(batch: u64) -> Time {
    Time::from_nanos(batch * 1_000_000)
}

/// Sixteen GPUs whose batches take what is expected, times noise, times what `slow` says of a GPU and a model.
struct Bench {
    stragglers: Stragglers,
    rng: Xoshiro256PlusPlus,
    noise: LogNormal<f64>,
    batches: u64,
}

impl Bench {
    fn new(sigma: f64) -> Self {
        let mut stragglers = Stragglers::new(StragglerSettings::default());
        (0..GPUS).for_each(|gpu| stragglers.add(GpuId::new(gpu)));
        let noise = LogNormal::new(0.0, sigma).unwrap();
        Self { stragglers, rng: Xoshiro256PlusPlus::seed_from_u64(1), noise, batches: 0 }
    }

    /// One batch on a GPU, of a model by chance.
    fn batch(&mut self, gpu: u32, slow: f64) -> Option<Quarantine> {
        let model = self.rng.random_range(0..MODELS);
        // Profiles are wrong by up to half, each model's in its own way.
        let expected = 10.0 / (1.0 + 0.15 * f64::from(model));
        let took = 10.0 * slow * self.noise.sample(&mut self.rng);
        let [expected, took] = [expected, took].map(Nanos::from_millis_f64);
        self.batches += 1;
        self.stragglers.ran(at(self.batches), GpuId::new(gpu), ModelId::new(model), expected, took)
    }

    /// A batch on each GPU, `rounds` times; returns the quarantines that begin or end.
    fn rounds(&mut self, rounds: usize, slow: impl Fn(u32) -> f64) -> Vec<Quarantine> {
        let mut quarantines = Vec::new();
        for _ in 0..rounds {
            for gpu in 0..GPUS {
                quarantines.extend(self.batch(gpu, slow(gpu)));
            }
        }
        quarantines
    }
}

#[test]
fn a_gpu_half_as_slow_again_is_found_within_twenty_batches() {
    let mut bench = Bench::new(0.05);
    assert_eq!(bench.rounds(100, |_| 1.0), []);
    let quarantines = bench.rounds(20, |gpu| if gpu == 5 { 1.5 } else { 1.0 });
    let [Quarantine::Out { gpu, slowdown, failed: 0, until }] = quarantines[..] else { panic!("{quarantines:?}") };
    assert_eq!(gpu, GpuId::new(5));
    assert!((slowdown - 1.5).abs() < 0.1, "{slowdown}");
    assert_eq!(bench.stragglers.state(gpu), Some(GpuState::Quarantined(until)));
}

#[test]
fn a_gpu_that_was_slow_from_the_beginning_is_found() {
    let mut bench = Bench::new(0.05);
    let quarantines = bench.rounds(60, |gpu| if gpu == 5 { 1.5 } else { 1.0 });
    assert!(matches!(quarantines[..], [Quarantine::Out { gpu, .. }] if gpu == GpuId::new(5)), "{quarantines:?}");
}

#[test]
fn a_million_batches_at_five_per_cent_noise_accuse_nobody() {
    let mut bench = Bench::new(0.05);
    assert_eq!(bench.rounds(1_000_000 / GPUS as usize, |_| 1.0), []);
}

#[test]
fn noise_of_a_fifth_and_pauses_accuse_nobody() {
    let mut bench = Bench::new(0.1);
    for round in 0..5_000_u32 {
        // Each GPU stands still for ten times a batch, once in 64 batches.
        let quarantines = bench.rounds(1, |gpu| if (round + gpu) % 64 == 0 { 10.0 } else { 1.0 });
        assert_eq!(quarantines, [], "round {round}");
    }
}

#[test]
fn where_all_become_slow_at_once_nobody_is_accused() {
    let mut bench = Bench::new(0.05);
    assert_eq!(bench.rounds(100, |_| 1.0), []);
    assert_eq!(bench.rounds(1000, |_| 1.7), []);
    // And one that is slower than that is found still.
    let quarantines = bench.rounds(20, |gpu| if gpu == 3 { 1.7 * 1.5 } else { 1.7 });
    assert!(matches!(quarantines[..], [Quarantine::Out { gpu, .. }] if gpu == GpuId::new(3)), "{quarantines:?}");
}

#[test]
fn a_gpu_alone_is_compared_with_nobody() {
    let mut stragglers = Stragglers::new(StragglerSettings { share_max: 1.0, ..StragglerSettings::default() });
    stragglers.add(GpuId::new(0));
    for batch in 0..10_000 {
        let took = Nanos::from_millis(if batch < 5_000 { 10 } else { 20 });
        let quarantine = stragglers.ran(at(batch), GpuId::new(0), ModelId::new(0), Nanos::from_millis(10), took);
        assert_eq!(quarantine, None);
    }
}

#[test]
fn it_is_tried_again_after_pauses_that_double_and_stays_when_it_is_well() {
    let mut bench = Bench::new(0.02);
    assert_eq!(bench.rounds(100, |_| 1.0), []);
    let sick = GpuId::new(2);
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let quarantines = bench.rounds(30, |gpu| if gpu == 2 { 2.0 } else { 1.0 });
        let out = quarantines.iter().find_map(|quarantine| match quarantine {
            Quarantine::Out { until, .. } => Some(*until),
            _ => None,
        });
        let until = out.unwrap_or_else(|| panic!("{quarantines:?}"));
        pauses.push(until.since(at(bench.batches)).as_secs_f64().ceil());
        assert_eq!(bench.stragglers.tick(until - Nanos::new(1)), []);
        assert_eq!(bench.stragglers.tick(until), [Quarantine::Try(sick)]);
        assert_eq!(bench.stragglers.tick(until), []);
        bench.batches = until.as_nanos() / 1_000_000;
    }
    // From the accusation, less the rounds that were run after it.
    assert_eq!(pauses, [30.0, 60.0, 120.0, 240.0]);
    assert_eq!(bench.rounds(60, |_| 1.0), [Quarantine::Passed(sick)]);
    assert_eq!(bench.stragglers.state(sick), Some(GpuState::Serving));
}

#[test]
fn no_more_than_the_share_is_out_and_a_smaller_cluster_has_fewer_out() {
    let mut bench = Bench::new(0.02);
    assert_eq!(bench.rounds(100, |_| 1.0), []);
    let quarantines = bench.rounds(200, |gpu| if gpu < 6 { 1.6 } else { 1.0 });
    assert_eq!((quarantines.len(), bench.stragglers.quarantined()), (4, 4), "a quarter of sixteen");
    let mut tries = Vec::new();
    for gpu in (8..GPUS).rev() {
        tries.extend(bench.stragglers.remove(GpuId::new(gpu)));
    }
    assert_eq!((tries.len(), bench.stragglers.quarantined()), (2, 2), "a quarter of eight");
}

proptest! {
    #[test]
    fn whatever_is_reported_the_share_holds_and_every_pause_ends(
        share_max in 0.0_f64..1.0,
        steps in prop::collection::vec((0_u32..12, 0_u32..3, 0_u64..200, 1_u64..40, 0_u8..20), 1..600),
    ) {
        let mut stragglers = Stragglers::new(StragglerSettings { share_max, ..StragglerSettings::default() });
        let mut now = Time::ZERO;
        for (gpu, model, took, pause, what) in steps {
            now += Nanos::from_millis(pause);
            let gpu = GpuId::new(gpu);
            match what {
                0 => stragglers.add(gpu),
                1 => drop(stragglers.remove(gpu)),
                2 => drop(stragglers.tick(now)),
                _ => {
                    stragglers.add(gpu);
                    let took = Nanos::from_millis(took * u64::from(1 + gpu.get() % 3));
                    let quarantine = stragglers.ran(now, gpu, ModelId::new(model), Nanos::from_millis(10), took);
                    if let Some(Quarantine::Out { until, .. }) = quarantine {
                        prop_assert!(until > now);
                    }
                }
            }
            prop_assert!(stragglers.quarantined() <= stragglers.quarantined_max());
        }
        let _ = stragglers.tick(Time::NEVER);
        prop_assert_eq!(stragglers.quarantined(), 0);
    }
}

/// A GPU that fails at once is free at once: it is given ten batches while others are given one.
#[test]
fn a_gpu_that_fails_whatever_it_is_given_is_found_after_six_batches_and_again_after_three() {
    let mut bench = Bench::new(0.05);
    assert_eq!(bench.rounds(100, |_| 1.0), []);
    let broken = GpuId::new(5);
    let fails = |bench: &mut Bench| {
        let mut quarantines = Vec::new();
        for batch in 1..=10 {
            if batch % 10 == 0 {
                quarantines.extend((0..GPUS).filter(|&gpu| gpu != 5).filter_map(|gpu| bench.batch(gpu, 1.0)));
            }
            bench.batches += 1;
            quarantines.extend(bench.stragglers.failed(at(bench.batches), broken));
        }
        quarantines
    };
    let quarantines = fails(&mut bench);
    let [Quarantine::Out { failed: 6, slowdown, until, .. }] = quarantines[..] else { panic!("{quarantines:?}") };
    assert!((slowdown - 1.0).abs() < 1e-9, "of those that failed no time is known: {slowdown}");
    bench.batches = until.as_nanos() / 1_000_000;
    assert_eq!(bench.stragglers.tick(until), [Quarantine::Try(broken)]);
    let _ = bench.rounds(20, |_| 1.0);
    let quarantines = fails(&mut bench);
    assert!(matches!(quarantines[..], [Quarantine::Out { failed: 3, .. }]), "{quarantines:?}");
}

/// A model that fails on some inputs, or on all, does so on whatever GPU.
#[test]
fn what_fails_everywhere_is_nobodys_fault() {
    for share in [0.02, 0.1, 0.2, 0.5, 1.0] {
        let mut bench = Bench::new(0.05);
        assert_eq!(bench.rounds(50, |_| 1.0), []);
        for _ in 0..2000 {
            for gpu in 0..GPUS {
                let found = if bench.rng.random_bool(share) {
                    bench.batches += 1;
                    bench.stragglers.failed(at(bench.batches), GpuId::new(gpu))
                } else {
                    bench.batch(gpu, 1.0)
                };
                assert_eq!(found, None, "{share} of all batches fail");
            }
        }
    }
}
