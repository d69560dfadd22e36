//! What a model's candidate would become if it waited, judged by the model's latest arrivals.

use symphony_types::{LatencyProfile, Nanos, Time};

use crate::actions::{Candidate, Demand, Growth};
use crate::class_window::{ClassWindow, InSeconds};
use crate::company::Company;
use crate::gap_meter::GapMeter;
use crate::rate_meter::RateMeter;

/// How likely another arrival before frontrun must be to wait for it. Lower values wait longer; from 0.7 to 0.9 goodput
/// changes by less than two percent (docs/adr/0008).
const LIKELY: f32 = 0.8;
/// The part of a batch's fixed cost β, one in so many, by which waiting for what an arrival saves ends before frontrun: where GPUs
/// are few and the window narrow, a GPU has to be found in that time.
const RESERVE: f64 = 10.0;
/// The part of what an arrival saves that a wait for it may cost. A wait takes of the time in which a GPU is to be found, too; from
/// 0.65 to 0.85 goodput changes by three percent at the most (docs/adr/0008).
const WORTH: f64 = 0.75;
/// The part of a batch's time that its fixed cost β has to be for hope to count: where company saves next to nothing (BERT, 2 %), only
/// the wait that pays for itself is worth it.
const FIXED_SHARE_MIN: f64 = 0.05;
/// GPUs that it costs a model to gain a batch's time of slack, by starting batches that much earlier, from which on they wait to the end
/// of the window without hope: then company is worth more than the slack that waiting for it takes (docs/adr/0008).
const SLACK_PRICE_MIN: f64 = 1.5;
/// That holds where the fixed costs of a model alone keep so many GPUs busy at the least. With about one GPU for a model, batches grow
/// while they wait for it, and early starts cost less than they seem to.
const FIXED_GPUS_MIN: f64 = 0.7;
/// And where arrivals follow upon an arrival by up to so many more than upon any moment: gamma arrivals of shape 0.5 have 0.5,
/// those of shape 0.3 have 1.2. After a burst there is nothing to wait for.
const EXCESS_MAX: f32 = 0.9;
/// Rates of fewer items than this are not told to the pool: they are a tenth wrong by chance, and those of alike models far apart.
const ITEMS_TOLD_MIN: f64 = 200.0;
/// How many times what it costs an early start has to save: its wait, at the most. At one it would be as good as none, and take away
/// a GPU that the next burst may need.
const SAVING_MIN: f64 = 2.0;
/// Items by which a candidate may fall short of what it is expected to become before it counts as crowded out: a batch
/// that starts that many items' time late is still nearly as large.
const TOLERANCE_ITEMS: u64 = 4;
/// Arrivals whose counts vary by more than this times their mean are bursty: Poisson arrivals give 1.0, and up to 1.5 by
/// chance in a hundred buckets.
const DISPERSION_MIN: f64 = 1.5;

/// The knowledge of the adaptive trigger about one model.
#[derive(Clone, Debug)]
pub(crate) struct Anticipation {
    gaps: GapMeter,
    /// Items per second.
    rate: f64,
    /// The items that it was measured by.
    items: f64,
}

impl Default for Anticipation {
    fn default() -> Self {
        Self { gaps: GapMeter::new(LIKELY), rate: 0.0, items: 0.0 }
    }
}

impl Anticipation {
    /// Counts an arrival.
    #[inline]
    pub(crate) fn arrived(&mut self, now: Time) {
        self.gaps.count(now);
    }

    /// Brings everything up to date but what [`Anticipation::learn_hope`] does.
    pub(crate) fn learn(&mut self, rate: &RateMeter) {
        self.gaps.learn();
        self.rate = rate.per_second();
        self.items = rate.items() as f64;
    }

    /// Brings up to date how long to wait, for windows that wait by hope: [`Anticipation::start`] needs it for no others.
    pub(crate) fn learn_hope(&mut self) {
        self.gaps.learn_hope();
    }

    /// What the model asks of GPUs with this profile; `target` is the batch that it aims at there.
    pub(crate) fn demand(rate: &RateMeter, profile: &LatencyProfile, target: u32, slo: Nanos) -> Demand {
        let per_item = profile.latency(target).as_secs_f64() / f64::from(target);
        let mean = rate.per_second() * per_item;
        // Work that arrives within an SLO, over that SLO: var(count) · per_item² / SLO², with var = dispersion · mean.
        let burstiness = (rate.dispersion() - DISPERSION_MIN).max(0.0);
        Demand::new(mean, burstiness * mean * per_item / slo.as_secs_f64())
    }

    /// Whether company is so dear and arrivals so regular that batches wait to the end of their window, whatever the gaps say.
    /// `budget` is what delays leave of the SLO.
    pub(crate) fn waits_without_hope(&self, window: &ClassWindow, budget: Nanos) -> bool {
        let waiting = FullWait::of(window, self.rate, budget);
        self.is_regular() && waiting.fixed_gpus >= FIXED_GPUS_MIN && waiting.slack_price >= SLACK_PRICE_MIN
    }

    /// Whether arrivals are known not to come in bursts, after which there is nothing to wait for.
    fn is_regular(&self) -> bool {
        self.gaps.excess().is_some_and(|excess| excess <= EXCESS_MAX)
    }

    /// What the model tells the pool of what company is worth to it on GPUs of this class; nothing if it does not wait for any.
    /// `budget` is what delays leave of the SLO.
    pub(crate) fn company(&self, window: &ClassWindow, budget: Nanos) -> Option<Company> {
        let waiting = FullWait::of(window, self.rate, budget);
        if !self.is_regular() || self.items < ITEMS_TOLD_MIN || !waiting.slack_price.is_finite() {
            return None;
        }
        // Casts of floats saturate.
        let rate = self.rate as u32;
        Some(Company {
            busy: Nanos::from_secs_f64(waiting.busy_gpus),
            fixed: Nanos::from_secs_f64(waiting.fixed_gpus),
            priced: Nanos::from_secs_f64(waiting.busy_gpus * waiting.slack_price),
            rates: rate.into(),
            rates_squared: u64::from(rate) * u64::from(rate),
            rate_min: Some(rate),
        })
    }

    /// How long before frontrun batches start at the most, if the pool says `told`: not where company saves next to nothing or arrivals
    /// come in bursts.
    pub(crate) fn hope_max(&self, window: &ClassWindow, told: Nanos) -> Nanos {
        let saves = window.beta_s >= FIXED_SHARE_MIN * window.profile.latency(window.whole_target).as_secs_f64();
        if saves && self.is_regular() { told } else { Nanos::MAX }
    }

    /// When a candidate of `batch` items that could wait until `frontrun` wants to start: when another arrival by then is no
    /// longer likely, nor worth the wait; no earlier than the pool lets it.
    #[inline]
    pub(crate) fn start(&self, now: Time, frontrun: Time, window: &ClassWindow, batch: u32) -> Time {
        if window.waits_without_hope {
            return frontrun;
        }
        self.start_by_gaps(now, frontrun, window, batch).max(frontrun - window.hope_max)
    }

    #[inline]
    fn start_by_gaps(&self, now: Time, frontrun: Time, window: &ClassWindow, batch: u32) -> Time {
        let Some(mut hope_ends) = self.gaps.hope_ends(frontrun) else { return frontrun };
        let beta_s = window.beta_s;
        if beta_s < FIXED_SHARE_MIN * window.in_seconds(batch).execution {
            hope_ends = hope_ends.min(now);
        }
        if hope_ends >= frontrun {
            return frontrun;
        }
        // One more item shares the fixed cost β with those that are there. With Poisson arrivals this is the rule of seed 000,
        // section 4.3: to wait until the batch has β·λ items.
        let gain = Nanos::from_secs_f64(WORTH * beta_s / f64::from(batch.max(1)));
        let until = frontrun - Nanos::from_secs_f64(beta_s / RESERVE);
        if until <= now.max(hope_ends) {
            return hope_ends;
        }
        self.gaps.pays_until(now, until, gain).map_or(hope_ends, |ends| ends.max(hope_ends))
    }

    /// What `candidate` would become: its start with arrivals at the model's rate, and what it would lose by not waiting for the company
    /// that its gaps let expect. After a burst has begun that is far more than the rate says.
    #[inline(always)]
    pub(crate) fn growth(&self, now: Time, candidate: &Candidate, window: &ClassWindow) -> Growth {
        let step = window.step(candidate.batch);
        let InSeconds { execution: execution_s, step: step_s } = window.in_seconds(candidate.batch);
        // Each arrival moves frontrun a step closer: wait = (frontrun − now) − rate · wait · step.
        let wait_s = (candidate.latest - step).since(now).as_secs_f64() / (1.0 + self.rate * step_s);
        let wait = Nanos::from_secs_f64(wait_s);
        let more = self.gaps.company(now, wait, self.rate);
        let items = f64::from(candidate.batch);
        // The same items within the larger batch take their share of it.
        let share_s = (execution_s + step_s * more) * items / (items + more);
        let expected = now + wait;
        let loss_s = (execution_s - share_s).max(0.0);
        let loss = if loss_s * SAVING_MIN > wait_s { Nanos::MAX } else { Nanos::from_secs_f64(loss_s) };
        Growth { expected, wanted: expected + step.saturating_mul(TOLERANCE_ITEMS), loss, demand: window.demand }
    }
}

/// What a model's batches are if each waits to the end of its window.
struct FullWait {
    /// GPUs that they keep busy, rate · ℓ(b) / b.
    busy_gpus: f64,
    /// GPUs that their fixed costs keep busy, F = rate · β / b.
    fixed_gpus: f64,
    /// GPUs that it costs to gain a batch's time of slack, F · ℓ(b) / (D − ℓ(2)). Whoever gives up a part x of each wait has batches that
    /// lack x of their company, which costs x · F GPUs, and gains x · (D − ℓ(2)) of slack: that wait, and what a smaller batch is shorter by.
    slack_price: f64,
}

impl FullWait {
    /// A batch whose first item waits for τ = D − ℓ(b + 1) is joined by rate · τ others.
    fn of(window: &ClassWindow, rate: f64, budget: Nanos) -> Self {
        let beta_s = window.beta_s;
        let alpha_s = window.profile.latency(1).as_secs_f64() - beta_s;
        let room_s = (budget.as_secs_f64() - beta_s - 2.0 * alpha_s).max(0.0);
        let batch = (1.0 + rate * room_s / (1.0 + rate * alpha_s)).min(f64::from(window.profile.batch_max()));
        let fixed_gpus = rate * beta_s / batch;
        // Without any room no company is to be had at any price.
        let slack_price = fixed_gpus * (beta_s + alpha_s * batch) / room_s;
        Self { busy_gpus: fixed_gpus + rate * alpha_s, fixed_gpus, slack_price }
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::GpuClass;

    use super::*;

    /// A model that has seen gaps of this mean, alike but for their lengths: `length(i)` for i of 0..1000, in no order.
    fn model(mean_us: f64, length: impl Fn(u64) -> f64) -> Anticipation {
        let (mut anticipation, mut rate) = (Anticipation::default(), RateMeter::default());
        let mut now_us = 0.0;
        for at in 0..4_000_u64 {
            now_us += mean_us * length(at * 619 % 1000);
            let now = Time::ZERO + Nanos::from_secs_f64(now_us / 1e6);
            rate.count(now, 1);
            anticipation.arrived(now);
        }
        anticipation.learn(&rate);
        anticipation.learn_hope();
        anticipation
    }

    fn poisson(at: u64) -> f64 {
        -(1.0 - (at as f64 + 0.5) / 1000.0).ln()
    }

    fn window(alpha_ms: f64, beta_ms: f64) -> ClassWindow {
        ClassWindow::new(GpuClass::FIRST, LatencyProfile::from_line(alpha_ms, beta_ms, 64).unwrap())
    }

    const BUDGET: Nanos = Nanos::from_millis(25);

    #[test]
    fn fixed_costs_are_counted_in_gpus() {
        // λ = 2 per ms: τ = (25 − 5 − 2) / (1 + 2) = 6 ms, b = 13, 2 · 5 / 13.
        let anticipation = model(500.0, |_| 1.0);
        let waiting = FullWait::of(&window(1.0, 5.0), anticipation.rate, BUDGET);
        assert!((waiting.fixed_gpus - 10.0 / 13.0).abs() < 0.01, "{}", waiting.fixed_gpus);
        // A batch of 13 takes 18 ms, and its first item could wait for as long if it had a single companion.
        assert!((waiting.slack_price - 10.0 / 13.0).abs() < 0.01, "{}", waiting.slack_price);
        // No room for company: each item pays for itself.
        let alone = FullWait::of(&window(1.0, 5.0), anticipation.rate, Nanos::from_millis(7));
        assert!((alone.fixed_gpus - 10.0).abs() < 0.1, "{}", alone.fixed_gpus);
        assert_eq!(FullWait::of(&window(1.0, 5.0), 0.0, BUDGET).fixed_gpus, 0.0);
    }

    #[test]
    fn dear_company_of_regular_arrivals_is_waited_for() {
        let (mut dear, line) = (window(1.0, 5.0), |per_ms: f64| model(1000.0 / per_ms, poisson));
        assert!(!line(2.0).waits_without_hope(&dear, BUDGET), "10 / 13 GPUs for a batch's time of slack");
        assert!(line(5.0).waits_without_hope(&dear, BUDGET), "25 / 16 · 21 / 18 GPUs");
        // λ = 0.25 per ms, D = 9 ms: b = 1.4. Slack is dear, 0.9 · 6.4 / 2, since there is hardly any; at half the rate it takes less than
        // a GPU, which a model has anyway.
        let tight = Nanos::from_millis(9);
        assert!(line(0.25).waits_without_hope(&dear, tight), "0.9 GPUs, 2.9 for a batch's time of slack");
        assert!(!line(0.125).waits_without_hope(&dear, tight), "0.5 GPUs, 1.6 for a batch's time of slack");
        assert!(!line(5.0).waits_without_hope(&window(6.0, 0.2), BUDGET), "company saves nothing");
        // Ten at once: the same rate.
        let bursts = model(200.0, |at| if at % 10 == 0 { 10.0 } else { 0.0 });
        assert!((bursts.rate - line(5.0).rate).abs() < 250.0, "{} and {}", bursts.rate, line(5.0).rate);
        assert!(!bursts.waits_without_hope(&dear, BUDGET), "after a burst nothing comes");
        assert!(!Anticipation::default().waits_without_hope(&dear, BUDGET), "nothing is known");

        let model = line(5.0);
        let now = Time::ZERO + Nanos::from_millis(800);
        let frontrun = now + Nanos::from_millis(1);
        assert!(model.start(now, frontrun, &dear, 8) < frontrun, "by hope");
        dear.waits_without_hope = true;
        assert_eq!(model.start(now, frontrun, &dear, 8), frontrun);
    }

    #[test]
    fn the_pool_says_how_early_hope_may_end() {
        let (mut window, now) = (window(1.0, 5.0), Time::ZERO + Nanos::from_millis(40_000));
        let rare = model(10_000.0, poisson);
        // In ten milliseconds another comes with 0.63, not with 0.8, and a wait of that mean is worth more than β.
        let frontrun = now + Nanos::from_millis(10);
        assert!(rare.start(now, frontrun, &window, 1) <= now, "by hope");
        window.hope_max = rare.hope_max(&window, Nanos::from_millis(3));
        assert_eq!(rare.start(now, frontrun, &window, 1), frontrun - Nanos::from_millis(3));
        window.hope_max = Nanos::from_millis(30);
        assert!(
            rare.start(now, frontrun, &window, 1) <= now,
            "no wait is made shorter, and none longer than the pool asks for"
        );
        // Hope that lasts longer than that is its own.
        let often = model(200.0, poisson);
        window.hope_max = Nanos::MAX;
        let by_hope = often.start(now, frontrun, &window, 8);
        window.hope_max = Nanos::from_millis(9);
        assert_eq!(often.start(now, frontrun, &window, 8), by_hope);
    }

    #[test]
    fn bursts_and_models_that_save_nothing_are_left_alone() {
        let told = Nanos::from_millis(3);
        let bursts = model(200.0, |at| if at % 10 == 0 { 10.0 } else { 0.0 });
        assert_eq!(bursts.hope_max(&window(1.0, 5.0), told), Nanos::MAX);
        assert_eq!(bursts.company(&window(1.0, 5.0), BUDGET), None);
        let regular = model(200.0, poisson);
        assert_eq!(regular.hope_max(&window(1.0, 5.0), told), told);
        assert_eq!(regular.hope_max(&window(6.0, 0.2), told), Nanos::MAX, "company saves next to nothing");
        assert_eq!(Anticipation::default().hope_max(&window(1.0, 5.0), told), Nanos::MAX, "nothing is known");
    }

    #[test]
    fn what_the_pool_is_told_is_what_full_waits_take() {
        // As above: λ = 2 per ms, b = 13, 10 / 13 GPUs for fixed costs and as many for a batch's time of slack, two for the items.
        let told = model(500.0, |_| 1.0).company(&window(1.0, 5.0), BUDGET).unwrap();
        let near =
            |told: Nanos, expected: f64| assert!((told.as_secs_f64() - expected).abs() < 0.02, "{told} and {expected}");
        near(told.fixed, 10.0 / 13.0);
        near(told.busy, 2.0 + 10.0 / 13.0);
        near(told.priced, (2.0 + 10.0 / 13.0) * 10.0 / 13.0);
        let rate = told.rate_min.unwrap();
        assert!((1_990..=2_010).contains(&rate), "{rate}");
        assert_eq!((told.rates, told.rates_squared), (rate.into(), u64::from(rate).pow(2)));
        // Three in ten seconds, and no time for a second item.
        assert_eq!(model(3e6, |_| 1.0).company(&window(1.0, 5.0), BUDGET), None);
        assert_eq!(model(500.0, |_| 1.0).company(&window(1.0, 5.0), Nanos::from_millis(6)), None);
    }
}
