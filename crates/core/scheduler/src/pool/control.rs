//! Computes the signal of a sub-cluster: its pressure, and how early its batches may start.

use symphony_types::{Nanos, Time};

use crate::auto::early_start::{EarlyStart, LOAD_MAX};
use crate::meters::lateness_meter::Overrun;
use crate::pool::account::Account;
use crate::pool::pressure::Pressure;
use crate::pool::signal::PoolSignal;
use crate::ranker::gpu_counts::GpuCounts;

/// The period of accounts and of the signal.
pub const POOL_TICK: Nanos = Nanos::from_millis(50);
/// Ticks in the window. Bursts and idle moments even out within a second, and the signal reacts to a step of the load
/// within two.
const TICKS: usize = 20;
/// A pressure expires after this time unless renewed: the length of the window, after which it would be forgotten
/// anyway.
pub const PRESSURE_VALID: Nanos = POOL_TICK.saturating_mul(TICKS as u64);
/// The weight of idle GPU time. At 2, shedding ends soon after the load falls, and bursts between idle times do not
/// count as overload.
const IDLE_WEIGHT: f64 = 2.0;
/// The share of losses that must be drops from queues, as evidence that the rest was rightly shed. It is large enough
/// to be seen within a window, and too small to be any model's whole share.
const DROPPED_MIN: f64 = 0.05;
/// Losses up to this share of the load are no overload: twice the one percent that a p99 allows, since a second is
/// noisy.
const LOSS_MIN: f64 = 0.02;

/// Input of a [`PoolControl`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolInput {
    /// Accounts of models since their previous reports.
    pub account: Account,
    /// GPUs that are idle now.
    pub gpus_idle: GpuCounts,
    /// GPUs of the sub-cluster.
    pub gpus: GpuCounts,
    /// Whether to leave whole GPUs idle: while GPUs are spare, batches then start at frontrun, or once another arrival
    /// is unlikely.
    pub consolidate: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tick {
    account: Account,
    /// Unused GPU time since the last input.
    idle: GpuCounts,
}

/// Computes what the models of a sub-cluster must know about each other.
///
/// **Pressure** = (recent losses of its models, of any kind − what idle GPUs could have served) / recent load, where
/// each model's load is divided by its value. The pressure follows losses and does not cause them: models do not lose
/// more in total, but each loses its share. When the load falls, queues stop dropping, GPUs idle, and the pressure is
/// zero within two windows. Up to two percent it is zero.
///
/// **Early start**: the earliest that the GPUs can afford at the demand of the last second.
///
/// **Overrun**: how much longer than predicted plans took, over the last second with completed plans.
#[derive(Clone, Debug, Default)]
pub struct PoolControl {
    ticks: [Tick; TICKS],
    /// Number of the current tick, counted from the origin of time.
    current: u64,
    /// Number of the first tick.
    first: Option<u64>,
    filling: Account,
    signal: PoolSignal,
    /// GPU time of the load so far.
    demand_time: Nanos,
}

impl PoolControl {
    /// One decision. Returns the signal for all models whenever it was recomputed, unless both it and its predecessor
    /// are neutral.
    pub fn step(&mut self, now: Time, input: PoolInput) -> Option<PoolSignal> {
        let tick = now.as_nanos() / POOL_TICK.get();
        self.first.get_or_insert(tick);
        self.filling = self.filling.and(input.account);
        if tick <= self.current {
            return None;
        }
        self.count_demand(&input.gpus);
        self.pass(tick, input.gpus_idle);
        self.current = tick;
        let before = self.signal;
        self.signal = self.find(&input);
        (before != PoolSignal::NONE || self.signal != PoolSignal::NONE).then_some(self.signal)
    }

    /// The newest pressure.
    #[must_use]
    pub const fn pressure(&self) -> Pressure {
        self.signal.pressure
    }

    /// GPU time that deferred batches would have taken so far, on the GPUs present at the time. It is proportional to
    /// the load, however early batches start, so the autoscaler uses it.
    #[must_use]
    pub const fn demand_time(&self) -> Nanos {
        self.demand_time
    }

    fn count_demand(&mut self, gpus: &GpuCounts) {
        let load = self.filling.demand.loads(gpus, POOL_TICK)[0];
        let there: u32 = gpus.0.iter().sum();
        // Without GPUs there is no GPU time to count.
        if load.is_finite() {
            self.demand_time += Nanos::from_secs_f64(load * f64::from(there) * POOL_TICK.as_secs_f64());
        }
    }

    /// Advances to `tick`; all input so far belongs to earlier ticks.
    fn pass(&mut self, tick: u64, idle: GpuCounts) {
        let filled = std::mem::take(&mut self.filling);
        // A silence longer than the window empties it; more steps would repeat the same writes.
        for number in tick.saturating_sub(TICKS as u64).max(self.current)..tick {
            let account = if number == self.current { filled } else { Account::default() };
            self.ticks[(number % TICKS as u64) as usize] = Tick { account, idle };
        }
    }

    fn find(&self, input: &PoolInput) -> PoolSignal {
        let seen = self.ticks.iter().fold(Account::default(), |sum, tick| sum.and(tick.account));
        // While no plan ends, the last overrun stands.
        let overrun = Overrun::between(seen.longer, seen.predicted).unwrap_or(self.signal.overrun);
        // Shorter than the window if time began later.
        let ticks = self.current.saturating_sub(self.first.unwrap_or(0)).clamp(1, TICKS as u64);
        let loads = seen.demand.loads(&input.gpus, POOL_TICK.saturating_mul(ticks));
        let affordable = EarlyStart::affordable(&loads, seen.demand.load_max(&input.gpus));
        // Near saturation no GPU can be left idle. The two decisions are close, and demand does not depend on them, so
        // they do not oscillate.
        let has_spare = EarlyStart::affordable(&loads, LOAD_MAX) > EarlyStart::LEAST;
        let consolidates = input.consolidate && has_spare;
        let early_start = if consolidates { EarlyStart::NONE } else { affordable };
        PoolSignal { pressure: self.pressure_of(&seen), early_start, overrun, gpus: input.gpus }
    }

    fn pressure_of(&self, seen: &Account) -> Pressure {
        // GPUs that could not have met any of the lost load are always idle and do not count.
        let idle: u32 = self.ticks.iter().map(|tick| tick.idle.of(seen.could_serve)).sum();
        let idle_s = f64::from(idle) * POOL_TICK.as_secs_f64();
        let (asked, shed, dropped) = (seen.asked.as_secs_f64(), seen.shed.as_secs_f64(), seen.dropped.as_secs_f64());
        // Requests that wait longer than the window are lost only after it, many at a time, which says nothing about
        // the present load. Cap the losses at the whole load.
        let lost = (shed + dropped).min(asked);
        // Shed load may have been shed needlessly: it counts only as far as other losses prove it necessary.
        let needed = lost.min(dropped / DROPPED_MIN);
        let missing = needed - IDLE_WEIGHT * idle_s;
        let Some(value_max) = seen.value_max.filter(|_| missing > LOSS_MIN * asked) else { return Pressure::NONE };
        let share = missing / seen.asked_by_value.as_secs_f64();
        // If some models already shed the maximum and that is less than their share, the others must shed the rest.
        let called = seen.called.as_secs_f64();
        let rest = if called > 0.0 { seen.called_in_full.as_secs_f64() / called } else { 1.0 };
        Pressure::from_share(share * rest).min(Pressure::all_from(value_max))
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::{GpuClasses, RequestValue};

    use super::*;
    use crate::auto::demand::Demand;

    /// In milliseconds: `shed`, `dropped`, and the required shedding with and without the limit.
    fn account(asked: u64, lost: [u64; 2], by_value: u64, called: [u64; 2]) -> Account {
        let ms = Nanos::from_millis;
        Account {
            asked: ms(asked),
            asked_by_value: ms(by_value),
            shed: ms(lost[0]),
            dropped: ms(lost[1]),
            called: ms(called[0]),
            called_in_full: ms(called[1]),
            could_serve: GpuClasses::from_bits(1),
            value_max: Some(RequestValue::ONE),
            ..Account::default()
        }
    }

    /// GPUs of the first class and of the second.
    fn idle(gpus: [u32; 2]) -> GpuCounts {
        let mut idle = GpuCounts::default();
        idle.0[..2].copy_from_slice(&gpus);
        idle
    }

    /// Tells the same in every tick of `from..to`; returns the last signal.
    fn repeat(control: &mut PoolControl, from: u64, to: u64, account: Account, gpus: u32) -> Option<Pressure> {
        let gpus_idle = idle([gpus, 0]);
        let at = |tick: u64| Time::ZERO + POOL_TICK.saturating_mul(tick);
        let signals = (from..to)
            .map(|tick| control.step(at(tick), PoolInput { account, gpus_idle, ..PoolInput::default() }))
            .last()
            .flatten();
        signals.map(|signal| signal.pressure)
    }

    #[test]
    fn the_pressure_is_the_share_that_is_lost() {
        let mut control = PoolControl::default();
        assert_eq!(repeat(&mut control, 1, 50, account(100, [0, 20], 100, [0; 2]), 0), Some(Pressure::from_share(0.2)));
        // The same loss of models of which half are worth four times as much.
        let mut control = PoolControl::default();
        let half = Pressure::from_share(20.0 / 62.5);
        assert_eq!(repeat(&mut control, 1, 50, account(1000, [0, 200], 625, [0; 2]), 0), Some(half));
    }

    #[test]
    fn two_percent_are_no_overload_and_nothing_is_said() {
        let mut control = PoolControl::default();
        assert_eq!(repeat(&mut control, 1, 50, account(1000, [0, 19], 1000, [0; 2]), 0), None);
        assert_eq!(
            repeat(&mut control, 50, 100, account(1000, [0, 21], 1000, [0; 2]), 0),
            Some(Pressure::from_share(0.021))
        );
        // Its end is signalled once.
        let at = |tick: u64| Time::ZERO + POOL_TICK.saturating_mul(tick);
        let signals: Vec<_> = (100..140).map(|tick| control.step(at(tick), PoolInput::default())).collect();
        assert_eq!(signals.iter().filter(|signal| **signal == Some(PoolSignal::NONE)).count(), 1);
        assert_eq!((signals[39], control.pressure()), (None, Pressure::NONE));
    }

    #[test]
    fn idle_gpus_take_the_pressure_away_within_the_window() {
        let mut control = PoolControl::default();
        repeat(&mut control, 1, 50, account(500, [90, 10], 500, [100; 2]), 0);
        assert_eq!(control.pressure(), Pressure::from_share(0.2));
        // Two idle GPUs, counted twice, over 50 ms: twice as much as is shed.
        let until = 50 + TICKS as u64 / 2 + 1;
        repeat(&mut control, 50, until, account(500, [90, 10], 500, [100; 2]), 2);
        assert!(control.pressure() < Pressure::from_share(0.05), "{}", control.pressure());
        repeat(&mut control, until, 50 + TICKS as u64, account(500, [90, 10], 500, [100; 2]), 2);
        assert_eq!(control.pressure(), Pressure::NONE);
    }

    #[test]
    fn what_is_shed_without_need_goes_within_two_windows() {
        let mut control = PoolControl::default();
        let needed = account(100, [19, 1], 100, [20; 2]);
        assert_eq!(repeat(&mut control, 1, 500, needed, 0), Some(Pressure::from_share(0.2)));
        let mut pressure = control.pressure();
        for tick in 500..500 + 2 * TICKS as u64 {
            let shed = (100.0 * pressure.share()) as u64;
            pressure =
                repeat(&mut control, tick, tick + 1, account(100, [shed, 0], 100, [shed; 2]), 0).unwrap_or(pressure);
        }
        assert_eq!(pressure, Pressure::NONE);
    }

    /// Demand that keeps this many GPUs of the first class busy for a tick, twice as many if batches start at once.
    fn asks(gpus: f64) -> Account {
        let mut demand = Demand::default();
        for (level, busy_time) in demand.busy[0].iter_mut().enumerate() {
            *busy_time = Nanos::from_secs_f64(POOL_TICK.as_secs_f64() * gpus * (1.0 + level as f64 / 8.0));
        }
        Account { demand, ..Account::default() }
    }

    #[test]
    fn batches_start_earlier_the_more_gpus_are_to_spare() {
        let at = |tick: u64| Time::ZERO + POOL_TICK.saturating_mul(tick);
        let starts = |gpus: f64| {
            let mut control = PoolControl::default();
            let input = PoolInput { account: asks(gpus), gpus: idle([10, 0]), ..PoolInput::default() };
            let signal = (0..60).filter_map(|tick| control.step(at(tick), input)).last();
            let demand_s = control.demand_time().as_secs_f64() / (60.0 * POOL_TICK.as_secs_f64());
            (signal.unwrap_or(PoolSignal::NONE).early_start.share(), demand_s)
        };
        let near = |(start, load): (f64, f64), wanted: (f64, f64)| {
            assert!(
                (start - wanted.0).abs() < 1e-3 && (load - wanted.1).abs() < 1e-3,
                "{start} with a demand of {load} GPUs"
            );
        };
        near(starts(3.9), (1.0, 3.9));
        // 0.72 · (1 + 2/8) = 0.9 at the third level, at which batches wait for half as long.
        near(starts(7.2), (0.5, 7.2));
        near(starts(9.0), (0.1, 9.0));
        near(starts(20.0), (0.1, 20.0));
    }

    /// The same, where ℓ(1) takes this share of the time that requests have.
    fn asks_tightly(gpus: f64, alone_share: f64) -> Account {
        let mut account = asks(gpus);
        account.demand.alone[0] = Nanos::from_secs_f64(account.demand.busy[0][0].as_secs_f64() * alone_share);
        account
    }

    #[test]
    fn batches_start_later_where_requests_have_little_time_beside_an_item() {
        let start = |alone_share: f64| {
            let account = asks_tightly(7.2, alone_share);
            let input = PoolInput { account, gpus: idle([10, 0]), ..PoolInput::default() };
            PoolControl::default().step(Time::ZERO + POOL_TICK, input).map(|signal| signal.early_start.share())
        };
        assert_eq!(start(0.25), start(0.0), "0.9 of the GPUs may be busy");
        // 4/5 of them at most, which is 0.72 · (1 + 8/9 / 8).
        let tight = start(0.5).unwrap();
        assert!((tight - 8.0 / 9.0 * 0.25).abs() < 1e-3, "{tight}");
        assert_eq!(start(0.9), Some(0.1));
    }

    #[test]
    fn a_step_of_the_load_is_answered_within_a_second_as_is_its_end() {
        let at = |tick: u64| Time::ZERO + POOL_TICK.saturating_mul(tick);
        let mut control = PoolControl::default();
        let mut start = |tick: u64, gpus: f64| {
            control.step(at(tick), PoolInput { account: asks(gpus), gpus: idle([10, 0]), ..PoolInput::default() });
            control.signal.early_start
        };
        let before: Vec<_> = (1..100).map(|tick| start(tick, 3.0)).collect();
        assert_eq!(before[98], EarlyStart::AT_ONCE);
        let high: Vec<_> = (100..200).map(|tick| start(tick, 9.0)).collect();
        assert!(high.is_sorted_by(|a, b| a >= b), "it falls and stays down");
        assert!(high[TICKS].share() < 0.15, "{:?}", high[TICKS]);
        let after: Vec<_> = (200..230).map(|tick| start(tick, 3.0)).collect();
        assert!(after.is_sorted(), "it rises and stays up");
        assert_eq!(after[TICKS + 1], EarlyStart::AT_ONCE);
    }

    #[test]
    fn an_uneven_load_moves_the_start_by_a_tenth_between_the_edges_and_hardly_at_them() {
        // Seven ticks in turn ask for one to seven quarters of the mean. No window of twenty has each of them equally
        // often, so the mean of a window varies by a twenty-fifth.
        let range_of = |gpus: f64| {
            let mut control = PoolControl::default();
            let starts: Vec<_> = (1..400)
                .map(|tick: u64| {
                    let input = PoolInput {
                        account: asks(gpus * (1 + (tick * 5) % 7) as f64 / 4.0),
                        gpus: idle([10, 0]),
                        ..PoolInput::default()
                    };
                    control.step(Time::ZERO + POOL_TICK.saturating_mul(tick), input);
                    control.signal.early_start.share()
                })
                .skip(TICKS)
                .collect();
            (starts.iter().copied().fold(1.0, f64::min), starts.iter().copied().fold(0.0, f64::max))
        };
        // Up to 4.5 GPUs batches start at once, from 9 on as late as ever.
        for (gpus, wanted) in [(4.5, 0.98..1.001), (7.2, 0.39..0.61), (9.0, 0.099..0.101)] {
            let (least, most) = range_of(gpus);
            assert!(wanted.contains(&least) && wanted.contains(&most), "{gpus} GPUs: {least} to {most}");
        }
    }

    #[test]
    fn who_wants_whole_gpus_idle_has_batches_start_late_however_many_there_are() {
        let mut control = PoolControl::default();
        let gpus = idle([10, 0]);
        let mut start = |tick: u64, consolidate: bool| {
            let input = PoolInput { account: asks(1.0), gpus, consolidate, ..PoolInput::default() };
            control.step(Time::ZERO + POOL_TICK.saturating_mul(tick), input).map(|signal| signal.early_start.share())
        };
        assert_eq!((start(1, true), start(2, true)), (Some(0.0), Some(0.0)));
        assert_eq!(start(3, false), Some(1.0));
        let tight = PoolInput { account: asks_tightly(5.0, 0.9), gpus, consolidate: true, ..PoolInput::default() };
        let signal = PoolControl::default().step(Time::ZERO + POOL_TICK, tight);
        assert_eq!(signal.map(|signal| signal.early_start.share()), Some(0.0), "half of the GPUs are to spare");
        let saturated = PoolInput { account: asks(9.5), gpus, consolidate: true, ..PoolInput::default() };
        let at = |tick: u64| Time::ZERO + POOL_TICK.saturating_mul(tick);
        let last = (4..30).map(|tick| control.step(at(tick), saturated)).last().flatten();
        assert_eq!(last.map(|signal| signal.early_start.share()), Some(0.1), "no GPU is to spare");
    }

    #[test]
    fn gpus_of_several_classes_share_the_demand() {
        // One GPU of a class that needs two for all, three of one that needs six: each could do a half.
        let mut demand = Demand::default();
        demand.busy[0] = [POOL_TICK.saturating_mul(2); crate::DEMAND_LEVELS];
        demand.busy[1] = [POOL_TICK.saturating_mul(6); crate::DEMAND_LEVELS];
        assert_eq!(demand.loads(&idle([1, 3]), POOL_TICK), [1.0; crate::DEMAND_LEVELS]);
        assert_eq!(demand.loads(&idle([2, 6]), POOL_TICK), [0.5; crate::DEMAND_LEVELS]);
        assert_eq!(demand.loads(&idle([0, 0]), POOL_TICK)[0], f64::INFINITY, "nobody can do it");
        assert_eq!(Demand::default().loads(&idle([0, 0]), POOL_TICK)[0], 0.0, "nothing is asked");
    }

    #[test]
    fn gpus_that_serve_little_of_the_demand_hardly_say_how_long_a_batch_may_wait() {
        // Ten items of 1 ms of a GPU each where ℓ(1) takes a quarter of a request's time, of 100 ms each where it takes
        // all of it, or nine tenths.
        let max = |gpus: [u32; 2], slow_alone: u64| {
            let ms = Nanos::from_millis;
            let mut demand = Demand::default();
            (demand.busy[0], demand.busy[1]) = ([ms(10); crate::DEMAND_LEVELS], [ms(1000); crate::DEMAND_LEVELS]);
            (demand.alone[0], demand.alone[1]) = (Nanos::from_micros(2500), ms(slow_alone));
            demand.load_max(&idle(gpus))
        };
        let four = max([4, 0], 1000);
        assert!((four - 4.8 / 5.8).abs() < 1e-9, "{four}");
        assert_eq!(max([4, 16], 1000), four, "those that are too slow for any request count for nothing");
        assert!(max([4, 1], 900) > four, "one that serves a four-hundredth makes no batch wait for longer");
        assert_eq!(max([0, 4], 1000), LOAD_MAX, "no GPU meets any request");
    }

    #[test]
    fn how_much_longer_plans_take_is_remembered_through_a_silence() {
        let at = |tick: u64| Time::ZERO + POOL_TICK.saturating_mul(tick);
        let mut control = PoolControl::default();
        let ended = |longer, predicted| PoolInput {
            account: Account { longer: Nanos::new(longer), predicted: Nanos::new(predicted), ..Account::default() },
            ..PoolInput::default()
        };
        control.step(at(1), ended(30, 1000));
        control.step(at(2), ended(70, 1000));
        let overrun = control.step(at(3), PoolInput::default()).map(|signal| signal.overrun);
        assert_eq!(overrun, Some(Overrun::from_thousandths(50)));
        assert_eq!(control.step(at(500), PoolInput::default()).map(|signal| signal.overrun), overrun);
        control.step(at(501), ended(10, 1000));
        let overrun = control.step(at(502), PoolInput::default()).map(|signal| signal.overrun);
        assert_eq!(overrun, Some(Overrun::from_thousandths(10)), "what was long ago does not count");
    }

    #[test]
    fn a_silence_is_the_end_of_it() {
        let mut control = PoolControl::default();
        repeat(&mut control, 1, 50, account(100, [0, 50], 100, [0; 2]), 0);
        assert_eq!(repeat(&mut control, 5000, 5001, account(100, [0, 0], 100, [0; 2]), 0), Some(Pressure::NONE));
    }

    #[test]
    fn what_some_cannot_shed_the_others_bear() {
        // Half of the requests are worth a tenth, and 0.7 of all are lost; but no model sheds more than 0.95.
        let mut control = PoolControl::default();
        let mut pressure = Pressure::NONE;
        for tick in 1..2000 {
            let called = |share_max: f64| {
                let share = |value: f64| (pressure.share() / value).min(share_max);
                (50_000.0 * (share(1.0) + share(0.1))) as u64
            };
            let called = [called(0.95), called(f64::INFINITY)];
            let account = account(100_000, [60_000, 10_000], 50_000 + 500_000, called);
            pressure = repeat(&mut control, tick, tick + 1, account, 0).unwrap_or(pressure);
        }
        // 0.5 · p + 0.5 · 0.95 = 0.7.
        assert!((pressure.share() - 0.45).abs() < 0.001, "{pressure}");
    }

    #[test]
    fn gpus_that_could_have_met_nothing_of_it_do_not_count() {
        let with = |gpus: [u32; 2]| {
            let mut control = PoolControl::default();
            for tick in 1..50 {
                let at = Time::ZERO + POOL_TICK.saturating_mul(tick);
                control.step(
                    at,
                    PoolInput {
                        account: account(500, [90, 10], 500, [100; 2]),
                        gpus_idle: idle(gpus),
                        ..PoolInput::default()
                    },
                );
            }
            control.pressure()
        };
        assert_eq!(with([0, 100]), Pressure::from_share(0.2));
        assert_eq!(with([100, 0]), Pressure::NONE);
    }

    #[test]
    fn it_does_not_rise_above_where_all_shed_all_they_may() {
        let mut control = PoolControl::default();
        let at = |tick: u64| Time::ZERO + POOL_TICK.saturating_mul(tick);
        let mut pressure = Pressure::NONE;
        let mut repeat = |from: u64, to: u64, asked: u64, served: u64| {
            for tick in from..to {
                let called = (asked as f64 * pressure.share().min(0.95)) as u64;
                let in_full = (asked as f64 * pressure.share()) as u64;
                let dropped = (asked - called).saturating_sub(served);
                let account = account(asked, [called, dropped], asked, [called, in_full]);
                control.step(at(tick), PoolInput { account, ..PoolInput::default() });
                pressure = control.pressure();
            }
            pressure
        };
        let highest = repeat(1, 6000, 10_000, 100);
        assert_eq!(highest, Pressure::from_share(0.95));
        let after = repeat(6000, 6000 + 2 * TICKS as u64, 160, 100);
        assert!((after.share() - 0.375).abs() < 0.05, "{after}");
    }

    #[test]
    fn losses_of_what_nobody_asks_for_any_more_are_no_pressure() {
        let mut control = PoolControl::default();
        let lost = Account { dropped: Nanos::from_millis(50), ..Account::default() };
        assert_eq!(repeat(&mut control, 1, 50, lost, 0), None);
    }
}
