//! How many GPUs a sub-cluster should have (the Symphony paper, section 4.4).

use std::collections::VecDeque;

use symphony_types::{Nanos, Time};

use crate::advice::{Advice, KindAdvice, Reason};
use crate::settings::{AutoscalerSettings, SettingsError};
use crate::window::{KindWindow, Window};

/// Samples per span: enough to place the end of the span accurately, and 4 KB.
const SAMPLES_MAX: u64 = 64;
/// Above this idle share lost requests are not due to a lack of GPUs: they have deadlines that no GPU can meet, or come
/// in bursts that no number of GPUs would absorb.
const IDLE_FUTILE: f64 = 0.5;
/// A bad rate counts if it exceeds the threshold by this many standard errors: few requests prove little.
const STANDARD_ERRORS: f64 = 2.0;
/// If requests × threshold is at least this, the short window decides alone; otherwise the long window must agree.
const BAD_REQUESTS_ENOUGH: f64 = 4.0;
/// While GPUs are on order, a need that exceeds them by less than this share is noise.
const ORDER_NOISE: f64 = 0.02;
/// Rounding tolerance: smaller fractions of a GPU count as zero.
const PART_OF_GPU: f64 = 1e-6;

/// Measurements over a span of time; capacities as capacity × nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sample {
    end: Time,
    length: Nanos,
    good: u64,
    bad: u64,
    capacity: f64,
    busy: f64,
    /// The largest need during the span.
    need: f64,
}

impl Sample {
    fn and(self, later: Self) -> Self {
        Self {
            end: later.end,
            length: self.length + later.length,
            good: self.good.saturating_add(later.good),
            bad: self.bad.saturating_add(later.bad),
            capacity: self.capacity + later.capacity,
            busy: self.busy + later.busy,
            need: self.need.max(later.need),
        }
    }

    fn requests(&self) -> f64 {
        self.good as f64 + self.bad as f64
    }

    fn bad_rate(&self) -> f64 {
        if self.bad == 0 { 0.0 } else { self.bad as f64 / self.requests() }
    }

    /// Without serving GPUs nothing is idle.
    fn idle_fraction(&self) -> f64 {
        if self.capacity > 0.0 { (1.0 - self.busy / self.capacity).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Mean capacity of the GPUs that took plans.
    fn serving(&self) -> f64 {
        let length = self.length.get() as f64;
        if length > 0.0 { self.capacity / length } else { 0.0 }
    }

    /// Whether the bad rate is significantly above `limit`: the lower end of its Wilson interval is.
    fn is_bad(&self, limit: f64) -> bool {
        let (n, p) = (self.requests(), self.bad_rate());
        if n <= 0.0 {
            return false;
        }
        let z2 = STANDARD_ERRORS * STANDARD_ERRORS;
        let spread = STANDARD_ERRORS * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
        (p + z2 / (2.0 * n) - spread) / (1.0 + z2 / n) > limit
    }
}

/// The samples of a span; old ones are merged when there are many.
#[derive(Clone, Debug, PartialEq)]
struct Span {
    length: Nanos,
    samples: VecDeque<Sample>,
}

impl Span {
    const fn new(length: Nanos) -> Self {
        Self { length, samples: VecDeque::new() }
    }

    fn push(&mut self, sample: Sample) {
        let resolution = self.length.get() / SAMPLES_MAX;
        match self.samples.back_mut() {
            Some(last) if (last.length + sample.length).get() <= resolution => *last = last.and(sample),
            _ => self.samples.push_back(sample),
        }
        let begin = sample.end - self.length;
        while self.samples.front().is_some_and(|first| first.end <= begin)
            || self.samples.len() as u64 > 2 * SAMPLES_MAX
        {
            self.samples.pop_front();
        }
    }

    fn sum(&self) -> Sample {
        self.samples.iter().fold(Sample::default(), |sum, &sample| sum.and(sample))
    }
}

/// The present capacity.
#[derive(Clone, Copy, Debug)]
struct Fleet {
    serving: f64,
    ordered: f64,
}

/// The measured state.
#[derive(Clone, Copy, Debug)]
struct Finding {
    reason: Reason,
    /// The needed capacity, including the reserve.
    need: f64,
    bad_rate: f64,
    idle_fraction: f64,
}

/// Decides the number of GPUs of one sub-cluster.
///
/// The law: a bad rate r asks for N·r/(1−r) more GPUs, an idle share f releases N·f. Additions to the law: a reserve,
/// so that a slow rise loses nothing; growth by a short window, release by the largest need of a long one; limits per
/// step and pauses. The need is a level, not a change: it is compared with the GPUs that serve and those on order, so
/// nothing is ordered twice.
#[derive(Clone, Debug, PartialEq)]
pub struct Autoscaler {
    settings: AutoscalerSettings,
    recent: Span,
    long: Span,
    /// Measurements are without a gap since this time.
    covered_from: Time,
    last_end: Option<Time>,
    last_up: Option<Time>,
    last_down: Option<Time>,
}

impl Autoscaler {
    /// Without measurements.
    ///
    /// # Errors
    /// If a setting is invalid; the message names it.
    pub fn new(settings: AutoscalerSettings) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self {
            recent: Span::new(settings.up_window),
            long: Span::new(settings.down_window),
            settings,
            covered_from: Time::ZERO,
            last_end: None,
            last_up: None,
            last_down: None,
        })
    }

    /// What it was built with.
    #[must_use]
    pub const fn settings(&self) -> &AutoscalerSettings {
        &self.settings
    }

    /// Mean capacity of the GPUs that served in the short window: what [`Advice::pressure`] is a difference to.
    #[must_use]
    pub fn serving(&self) -> f64 {
        self.recent.sum().serving()
    }

    /// Takes the measurements of a span that ends `now` and returns advice. An empty span changes nothing.
    pub fn observe(&mut self, now: Time, window: &Window) -> Advice {
        let fleet = self.fleet(window);
        self.record(now, window);
        let finding = self.finding();
        if let Some(last) = self.long.samples.back_mut() {
            last.need = last.need.max(finding.need);
        }
        let pressure = finding.need - self.recent.sum().serving();
        let mut advice = Advice {
            reason: finding.reason,
            kinds: self.kinds(window).map(|kind| self.unchanged(kind)).collect(),
            bad_rate: finding.bad_rate,
            idle_fraction: finding.idle_fraction,
            pressure,
        };
        if self.keep_limits(window, &mut advice) {
            advice.reason = Reason::Limits;
        } else if matches!(finding.reason, Reason::BadRate | Reason::LittleIdle) {
            let paused = self.last_down.is_some_and(|at| now.since(at) < self.settings.up_after_down);
            if finding.reason == Reason::BadRate || !paused {
                self.add(window, fleet, finding.need, &mut advice);
            }
        } else if finding.reason == Reason::Enough && self.may_release(now) {
            self.give_back(window, fleet, &mut advice);
        }
        self.remember(now, &advice);
        advice
    }

    /// This finding, with the steps to exactly these numbers of GPUs by kind instead of its own: a host that knows more
    /// of the kinds has chosen them. The pauses of the law count from them as from its own steps.
    #[must_use]
    pub fn toward(&mut self, now: Time, window: &Window, counts: &[u32], finding: &Advice) -> Advice {
        let kinds = self.kinds(window).zip(counts).map(|(kind, &count)| {
            let (mut advice, there) = (self.unchanged(kind), there(kind));
            if there < count {
                advice.add(count - there);
            } else if there > count {
                advice.drop(kind, there - count);
            }
            advice
        });
        let advice = Advice { kinds: kinds.collect(), ..finding.clone() };
        self.remember(now, &advice);
        advice
    }

    fn remember(&mut self, now: Time, advice: &Advice) {
        if advice.adds() {
            self.last_up = Some(now);
        }
        if advice.kinds.iter().any(|kind| kind.cancel > 0 || !kind.release.is_empty()) {
            self.last_down = Some(now);
        }
    }

    fn kinds<'a>(&'a self, window: &'a Window) -> impl Iterator<Item = &'a KindWindow> {
        const NONE: &KindWindow =
            &KindWindow { serving: Vec::new(), ordered: 0, gpu_time: Nanos::ZERO, busy_time: Nanos::ZERO };
        (0..self.settings.kinds.len()).map(|kind| window.kinds.get(kind).unwrap_or(NONE))
    }

    fn unchanged(&self, kind: &KindWindow) -> KindAdvice {
        KindAdvice { target: there(kind), ..KindAdvice::default() }
    }

    fn fleet(&self, window: &Window) -> Fleet {
        let mut fleet = Fleet { serving: 0.0, ordered: 0.0 };
        for (kind, settings) in self.kinds(window).zip(&self.settings.kinds) {
            fleet.serving += settings.capacity * kind.serving.len() as f64;
            fleet.ordered += settings.capacity * f64::from(kind.ordered);
        }
        fleet
    }

    fn record(&mut self, now: Time, window: &Window) {
        if window.length == Nanos::ZERO {
            return;
        }
        let begin = now - window.length;
        if self.last_end.is_none_or(|last| begin.since(last) > self.settings.up_window) {
            self.covered_from = begin;
        }
        self.last_end = Some(now);
        let (mut capacity, mut busy) = (0.0, 0.0);
        for (kind, settings) in self.kinds(window).zip(&self.settings.kinds) {
            capacity += settings.capacity * kind.gpu_time.get() as f64;
            busy += settings.capacity * kind.busy_time.min(kind.gpu_time).get() as f64;
        }
        let (good, bad) = (window.good, window.bad);
        let sample = Sample { end: now, length: window.length, good, bad, capacity, busy, need: 0.0 };
        self.recent.push(sample);
        self.long.push(sample);
    }

    /// The law.
    fn finding(&self) -> Finding {
        let limit = self.settings.bad_rate_max;
        let newest = self.newest_bad(limit);
        let mut bad = newest.is_some();
        let mut sum = newest.unwrap_or_else(|| self.recent.sum());
        if !bad && sum.requests() * limit < BAD_REQUESTS_ENOUGH {
            let long = self.long.sum();
            if long.is_bad(limit) {
                (sum, bad) = (long, true);
            }
        }
        let (bad_rate, idle_fraction, serving) = (sum.bad_rate(), sum.idle_fraction(), sum.serving());
        let busy = serving * (1.0 - idle_fraction);
        let with_reserve = |capacity: f64| capacity / (1.0 - self.settings.reserve);
        let (reason, need) = if bad && idle_fraction > IDLE_FUTILE {
            (Reason::BadWhileIdle, serving)
        } else if bad {
            // N + N·r/(1−r) = N/(1−r). The busy capacity plus the losses must fit below the reserve as well.
            let answered = 1.0 - bad_rate;
            (Reason::BadRate, (serving / answered).max(with_reserve(busy / answered)))
        } else if idle_fraction < self.settings.reserve_min && sum.requests() > 0.0 {
            (Reason::LittleIdle, with_reserve(busy))
        } else {
            (Reason::Enough, with_reserve(busy))
        };
        Finding { reason, need: if need.is_nan() { 0.0 } else { need }, bad_rate, idle_fraction }
    }

    /// The shortest recent span that proves losses: after a step of the load, measurements from before the step would
    /// hide its size. Few requests decide only if the whole short window has no more.
    fn newest_bad(&self, limit: f64) -> Option<Sample> {
        let mut sum: Option<Sample> = None;
        for (left, &sample) in self.recent.samples.iter().enumerate().rev() {
            let since = sum.map_or(sample, |later| sample.and(later));
            if since.is_bad(limit) && (left == 0 || since.requests() * limit >= BAD_REQUESTS_ENOUGH) {
                return Some(since);
            }
            sum = Some(since);
        }
        None
    }

    /// Brings the GPU counts within their limits; returns whether one was outside.
    fn keep_limits(&self, window: &Window, advice: &mut Advice) -> bool {
        let mut outside = false;
        for ((kind, settings), advice) in self.kinds(window).zip(&self.settings.kinds).zip(&mut advice.kinds) {
            let there = there(kind);
            if there < settings.min {
                advice.add(settings.min - there);
            } else if there > settings.max {
                advice.drop(kind, there - settings.max);
            } else {
                continue;
            }
            outside = true;
        }
        outside
    }

    fn add(&self, window: &Window, fleet: Fleet, need: f64, advice: &mut Advice) {
        let total = fleet.serving + fleet.ordered;
        let mut open = need - total;
        let noise = if fleet.ordered > 0.0 { ORDER_NOISE * total } else { 0.0 };
        if fleet.serving > 0.0 && open <= noise {
            return;
        }
        let mut step = (fleet.serving * self.settings.up_step_max - fleet.ordered).max(0.0);
        // At least one GPU may always be on order: otherwise small clusters could not grow and empty ones could not
        // start.
        let mut first = fleet.ordered == 0.0;
        for ((kind, settings), advice) in self.kinds(window).zip(&self.settings.kinds).zip(&mut advice.kinds) {
            let gpus = |capacity: f64, round: fn(f64) -> f64| round(capacity / settings.capacity) as u32;
            let wanted = gpus(open - PART_OF_GPU, f64::ceil).max(u32::from(fleet.serving == 0.0 && first));
            let allowed = gpus(step + PART_OF_GPU, f64::floor).max(u32::from(first));
            let count = wanted.min(allowed).min(settings.max.saturating_sub(there(kind)));
            if count > 0 {
                advice.add(count);
                first = false;
                open -= settings.capacity * f64::from(count);
                step -= settings.capacity * f64::from(count);
            }
            if open <= PART_OF_GPU {
                return;
            }
        }
    }

    fn may_release(&self, now: Time) -> bool {
        let settings = &self.settings;
        let rested = |last: Option<Time>, pause: Nanos| last.is_none_or(|at| now.since(at) >= pause);
        now.since(self.covered_from) >= settings.down_window
            && rested(self.last_up, settings.down_after_up)
            && rested(self.last_down, settings.down_period)
    }

    /// Releases GPUs that were not needed in the long window.
    fn give_back(&self, window: &Window, fleet: Fleet, advice: &mut Advice) {
        let total = fleet.serving + fleet.ordered;
        let needed = self.long.samples.iter().map(|sample| sample.need).fold(0.0, f64::max);
        let surplus = total - needed;
        if total <= 0.0 || surplus < self.settings.release_band * total {
            return;
        }
        let mut step = self.settings.down_step_max * total;
        let (mut open, mut first) = (surplus, true);
        let kinds = self.kinds(window).zip(&self.settings.kinds).zip(&mut advice.kinds);
        for ((kind, settings), advice) in kinds.collect::<Vec<_>>().into_iter().rev() {
            let gpus = |capacity: f64| (capacity / settings.capacity + PART_OF_GPU).floor() as u32;
            let allowed = gpus(step).max(u32::from(first));
            let spare = there(kind).saturating_sub(settings.min);
            let count = gpus(open.max(0.0)).min(allowed).min(spare);
            if count > 0 {
                advice.drop(kind, count);
                first = false;
                open -= settings.capacity * f64::from(count);
                step -= settings.capacity * f64::from(count);
            }
        }
        if !first {
            advice.reason = Reason::Idle;
        }
    }
}

/// GPUs of a kind that serve or are on order.
fn there(kind: &KindWindow) -> u32 {
    (kind.serving.len() as u32).saturating_add(kind.ordered)
}

impl KindAdvice {
    fn add(&mut self, count: u32) {
        self.add += count;
        self.target += count;
    }

    /// Cancels orders first, then releases the highest ids.
    fn drop(&mut self, kind: &KindWindow, count: u32) {
        self.cancel = count.min(kind.ordered);
        let release = (count - self.cancel) as usize;
        let mut serving = kind.serving.clone();
        serving.sort_unstable_by(|a, b| b.cmp(a));
        serving.truncate(release);
        self.target = self.target.saturating_sub(self.cancel + serving.len() as u32);
        self.release = serving;
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::GpuId;

    use super::*;
    use crate::settings::KindSettings;

    const SECOND: Nanos = Nanos::from_millis(1000);

    fn settings(max: u32) -> AutoscalerSettings {
        AutoscalerSettings::new(vec![KindSettings { min: 1, max, capacity: 1.0 }])
    }

    fn at(second: u64) -> Time {
        Time::ZERO + SECOND.saturating_mul(second)
    }

    /// One second with `gpus` GPUs of one kind, some more on order, and 100 000 requests.
    fn window(gpus: u32, ordered: u32, bad_rate: f64, idle: f64) -> Window {
        let bad = (bad_rate * 1e5) as u64;
        let gpu_time = SECOND.saturating_mul(u64::from(gpus));
        let busy_time = Nanos::from_secs_f64(gpu_time.as_secs_f64() * (1.0 - idle));
        let kind = KindWindow { serving: (0..gpus).map(GpuId::new).collect(), ordered, gpu_time, busy_time };
        Window { length: SECOND, good: 100_000 - bad, bad, kinds: vec![kind] }
    }

    fn counts(advice: &Advice) -> (Reason, u32, u32, usize) {
        let kind = &advice.kinds[0];
        (advice.reason, kind.add, kind.cancel, kind.release.len())
    }

    #[test]
    fn without_a_reserve_the_law_is_the_papers() {
        let law = AutoscalerSettings { reserve: 0.0, reserve_min: 0.0, ..settings(1000) };
        let mut scaler = Autoscaler::new(law.clone()).unwrap();
        // N·r/(1−r) = 100 · 0.2 / 0.8.
        let advice = scaler.observe(at(1), &window(100, 0, 0.2, 0.0));
        assert_eq!(counts(&advice), (Reason::BadRate, 25, 0, 0));
        assert!((advice.pressure - 25.0).abs() < 1e-9);
        // N·f = 100 · 0.3, a tenth at a time.
        let mut scaler = Autoscaler::new(law).unwrap();
        let advice = (1..=60).map(|second| scaler.observe(at(second), &window(100, 0, 0.0, 0.3))).last().unwrap();
        assert!((advice.pressure + 30.0).abs() < 1e-6);
        assert_eq!(counts(&advice), (Reason::Idle, 0, 0, 10));
        assert_eq!(advice.kinds[0].release[..2], [GpuId::new(99), GpuId::new(98)]);
        assert_eq!(advice.kinds[0].target, 90);
    }

    #[test]
    fn what_is_on_order_is_asked_for_once() {
        let mut scaler = Autoscaler::new(settings(1000)).unwrap();
        let first = scaler.observe(at(1), &window(100, 0, 0.2, 0.0));
        assert_eq!(counts(&first), (Reason::BadRate, 32, 0, 0), "25 for what is lost, the rest for the reserve");
        for second in 2..10 {
            let again = scaler.observe(at(second), &window(100, 32, 0.2, 0.0));
            assert_eq!(counts(&again), (Reason::BadRate, 0, 0, 0));
        }
    }

    #[test]
    fn a_rise_that_idle_gpus_foretell_loses_nothing() {
        let mut scaler = Autoscaler::new(settings(1000)).unwrap();
        assert_eq!(counts(&scaler.observe(at(1), &window(100, 0, 0.0, 0.03))), (Reason::Enough, 0, 0, 0));
        let mut scaler = Autoscaler::new(settings(1000)).unwrap();
        // 99 busy GPUs are 95 % of 104.2.
        assert_eq!(counts(&scaler.observe(at(1), &window(100, 0, 0.0, 0.01))), (Reason::LittleIdle, 5, 0, 0));
    }

    #[test]
    fn a_step_is_answered_by_what_came_after_it() {
        let mut scaler = Autoscaler::new(settings(1000)).unwrap();
        for second in 1..=3 {
            assert!(!scaler.observe(at(second), &window(100, 0, 0.0, 0.05)).changes());
        }
        // 25 for the losses, the rest for the reserve: the same as without the quiet seconds before.
        assert_eq!(counts(&scaler.observe(at(4), &window(100, 0, 0.2, 0.0))), (Reason::BadRate, 32, 0, 0));
        // Few requests in the newest second, one of them lost, prove nothing by themselves.
        let mut scaler = Autoscaler::new(settings(1000)).unwrap();
        let mut few = window(4, 0, 0.0, 0.1);
        (few.good, few.bad) = (30, 0);
        let _ = scaler.observe(at(1), &few);
        let _ = scaler.observe(at(2), &few);
        (few.good, few.bad) = (2, 1);
        assert_eq!(scaler.observe(at(3), &few).reason, Reason::Enough);
    }

    #[test]
    fn losses_that_more_gpus_would_not_cure_ask_for_none() {
        let mut scaler = Autoscaler::new(settings(1000)).unwrap();
        for second in 1..100 {
            let advice = scaler.observe(at(second), &window(100, 0, 0.05, 0.7));
            assert_eq!(counts(&advice), (Reason::BadWhileIdle, 0, 0, 0));
        }
    }

    #[test]
    fn few_requests_prove_nothing_until_there_are_enough_of_them() {
        let mut scaler = Autoscaler::new(settings(1000)).unwrap();
        let mut few = window(4, 0, 0.0, 0.1);
        (few.good, few.bad) = (9, 1);
        let first = scaler.observe(at(1), &few);
        assert_eq!(first.reason, Reason::BadRate, "one of ten is beyond doubt above 0.5 %");
        let mut scaler = Autoscaler::new(settings(1000)).unwrap();
        (few.good, few.bad) = (49, 1);
        let mut found = (1..=60).map(|second| {
            let advice = scaler.observe(at(second), &few);
            (second, advice.reason)
        });
        assert_eq!(found.next().unwrap().1, Reason::Enough, "one of fifty may be chance");
        assert!(found.any(|(second, reason)| second > 3 && reason == Reason::BadRate), "2 % in a minute is none");
    }

    #[test]
    fn a_short_dip_gives_nothing_back() {
        let mut scaler = Autoscaler::new(settings(1000)).unwrap();
        for second in 1..600 {
            // Half of the load pauses for fifty seconds of every minute.
            let idle = if second % 60 < 10 { 0.04 } else { 0.5 };
            assert!(!scaler.observe(at(second), &window(100, 0, 0.0, idle)).changes());
        }
    }

    #[test]
    fn orders_are_taken_back_before_gpus_are_released() {
        let mut scaler = Autoscaler::new(settings(1000)).unwrap();
        let last = (1..=60).map(|second| scaler.observe(at(second), &window(100, 6, 0.0, 0.3))).last().unwrap();
        assert_eq!(counts(&last), (Reason::Idle, 0, 6, 4));
    }

    #[test]
    fn limits_hold_whatever_was_measured() {
        let kinds = vec![KindSettings { min: 10, max: 20, capacity: 1.0 }];
        let mut scaler = Autoscaler::new(AutoscalerSettings::new(kinds)).unwrap();
        assert_eq!(counts(&scaler.observe(at(1), &window(4, 2, 0.0, 1.0))), (Reason::Limits, 4, 0, 0));
        assert_eq!(counts(&scaler.observe(at(2), &window(25, 2, 0.9, 0.0))), (Reason::Limits, 0, 2, 5));
        assert_eq!(counts(&scaler.observe(at(3), &window(20, 0, 0.9, 0.0))), (Reason::BadRate, 0, 0, 0));
    }

    #[test]
    fn the_numbers_of_somebody_else_are_reached_in_one_step_and_rested_upon() {
        let kinds = vec![KindSettings { min: 0, max: 100, capacity: 1.0 }; 2];
        let mut scaler = Autoscaler::new(AutoscalerSettings::new(kinds)).unwrap();
        let kind = |ids: std::ops::Range<u32>, ordered| KindWindow {
            serving: ids.map(GpuId::new).collect(),
            ordered,
            gpu_time: SECOND,
            busy_time: SECOND.divided_by(2),
        };
        let window = Window { length: SECOND, good: 9, bad: 0, kinds: vec![kind(0..4, 2), kind(4..5, 0)] };
        let finding = (1..60).map(|second| scaler.observe(at(second), &window)).last().unwrap();
        let advice = scaler.toward(at(59), &window, &[3, 7], &finding);
        assert_eq!((advice.kinds[0].cancel, &advice.kinds[0].release[..]), (2, &[GpuId::new(3)][..]));
        assert_eq!((advice.kinds[1].add, advice.kinds[1].target, advice.kinds[0].target), (6, 7, 3));
        assert!(!scaler.observe(at(60), &window).changes(), "it would have released by now");
        let rests = scaler.toward(at(60), &window, &[6, 1], &finding);
        assert!(!rests.changes() && rests.kinds[0].target == 6);
    }

    #[test]
    fn a_sub_cluster_without_gpus_begins_with_one_when_somebody_asks() {
        let kinds = vec![KindSettings { min: 0, max: 20, capacity: 1.0 }];
        let mut scaler = Autoscaler::new(AutoscalerSettings::new(kinds)).unwrap();
        let mut busy = window(0, 0, 0.0, 0.0);
        (busy.good, busy.bad) = (0, 0);
        assert!(!scaler.observe(at(1), &busy).changes());
        busy.bad = 3;
        assert_eq!(counts(&scaler.observe(at(2), &busy)), (Reason::BadRate, 1, 0, 0));
        busy.kinds[0].ordered = 1;
        assert_eq!(counts(&scaler.observe(at(3), &busy)), (Reason::BadRate, 0, 0, 0));
    }

    #[test]
    fn the_first_kind_is_added_first_and_the_last_one_released_first() {
        let kinds =
            vec![KindSettings { min: 1, max: 12, capacity: 2.0 }, KindSettings { min: 1, max: 100, capacity: 1.0 }];
        let kind = |count: u32, busy: f64| {
            let gpu_time = SECOND.saturating_mul(u64::from(count));
            let busy_time = Nanos::from_secs_f64(gpu_time.as_secs_f64() * busy);
            let serving = (0..count).map(GpuId::new).collect();
            KindWindow { serving, ordered: 0, gpu_time, busy_time }
        };
        let settings = AutoscalerSettings { reserve: 0.0, reserve_min: 0.0, ..AutoscalerSettings::new(kinds) };
        let mut scaler = Autoscaler::new(settings.clone()).unwrap();
        // 30 units serve, and 30 · 0.25 / 0.75 = 10 are missing: two GPUs of the first kind, which is its limit, and
        // six of the second.
        let full = Window { length: SECOND, good: 75_000, bad: 25_000, kinds: vec![kind(10, 1.0), kind(10, 1.0)] };
        let advice = scaler.observe(at(1), &full);
        assert_eq!((advice.kinds[0].add, advice.kinds[1].add), (2, 6));
        let mut scaler = Autoscaler::new(settings).unwrap();
        let idle = Window { length: SECOND, good: 1000, bad: 0, kinds: vec![kind(10, 0.5), kind(2, 0.5)] };
        let advice = (1..=60).map(|second| scaler.observe(at(second), &idle)).last().unwrap();
        // A tenth of 22 units: one GPU of the second kind, which must keep one, and half of one of the first.
        assert_eq!(advice.kinds[1].release, [GpuId::new(1)]);
        assert_eq!(advice.kinds[0].release, []);
    }

    #[test]
    fn after_a_gap_the_window_begins_anew() {
        let mut scaler = Autoscaler::new(settings(1000)).unwrap();
        for second in 1..30 {
            assert!(!scaler.observe(at(second), &window(100, 0, 0.0, 0.5)).changes());
        }
        for second in 600..659 {
            assert!(!scaler.observe(at(second), &window(100, 0, 0.0, 0.5)).changes(), "at {second} s");
        }
        assert!(scaler.observe(at(660), &window(100, 0, 0.0, 0.5)).releases());
    }

    #[test]
    fn windows_of_any_length_are_kept_in_bounds() {
        let mut scaler = Autoscaler::new(settings(1000)).unwrap();
        let mut tiny = window(100, 0, 0.0, 0.5);
        tiny.length = Nanos::new(1_000);
        for step in 1..100_000 {
            let _ = scaler.observe(Time::from_nanos(step * 1_000), &tiny);
        }
        tiny.length = Nanos::ZERO;
        let _ = scaler.observe(Time::from_nanos(1_000_000_000), &tiny);
        let bound = 2 * SAMPLES_MAX as usize;
        assert!(scaler.recent.samples.len() <= bound && scaler.long.samples.len() <= bound);
    }
}
