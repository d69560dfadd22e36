//! When a cluster should compute a new plan (the Symphony paper, section 4.7: "every epoch").

use std::collections::BTreeMap;

use symphony_types::{ModelId, Nanos, Time};

/// A few minutes, as the Symphony paper suggests.
const PERIOD: Nanos = Nanos::from_millis(300_000);
/// From the end of one epoch: its moves end, and are measured, before the next begins.
const DISTANCE_MIN: Nanos = Nanos::from_millis(60_000);
/// A share of the rates. Less is noise of the measured ones: a new plan would hardly differ.
const RATE_CHANGE_MIN: f64 = 0.2;
/// How long a change lasts that is no burst: these are over sooner.
const CHANGE_HOLDS: Nanos = Nanos::from_millis(10_000);

/// When an epoch begins.
#[derive(Clone, Debug, PartialEq)]
pub struct TriggerSettings {
    /// The period of epochs if nothing changes.
    pub period: Nanos,
    /// The least time from the end of an epoch to the start of the next, unless an operator asks for one.
    pub distance_min: Nanos,
    /// A large change of the rates: ½·Σ|rᵢ/R − r'ᵢ/R'| + |R − R'|/R' ≥ this share. The first term is the load that
    /// moved between models, the second the change of the total.
    pub rate_change_min: f64,
    /// How long such a change must last.
    pub change_holds: Nanos,
    /// Whether epochs without an operator's request are dry runs.
    pub dry_run: bool,
}

impl Default for TriggerSettings {
    fn default() -> Self {
        Self {
            period: PERIOD,
            distance_min: DISTANCE_MIN,
            rate_change_min: RATE_CHANGE_MIN,
            change_holds: CHANGE_HOLDS,
            dry_run: false,
        }
    }
}

impl TriggerSettings {
    /// With all times but the period, which an operator chooses, divided by `times`.
    #[must_use]
    pub fn sped_up(self, times: u32) -> Self {
        Self {
            distance_min: self.distance_min.divided_by(times),
            change_holds: self.change_holds.divided_by(times),
            ..self
        }
    }
}

/// The number of consecutive failures after which the pause stops growing: 2⁵ times the least distance.
const BACKOFF_DOUBLINGS_MAX: u32 = 5;

/// What caused an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// An operator's request.
    Operator,
    /// Models, GPUs or nodes were added or removed.
    Membership,
    /// The rates have changed by this share since the last plan.
    Rates(f64),
    /// The period has elapsed.
    Period,
}

impl Why {
    /// The stable label, for metrics and logs.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Membership => "membership",
            Self::Rates(_) => "rates",
            Self::Period => "period",
        }
    }
}

/// The order to start an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    /// Its cause.
    pub why: Why,
    /// Whether it is a dry run: the plan is shown and not adopted.
    pub dry_run: bool,
}

/// How an epoch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Success: its plan is in force, equals the previous one, or was shown in a dry run.
    Done,
    /// Failure: no plan was found, or it was not adopted. The previous one stays in force.
    Failed,
}

/// The observations of an epoch.
#[derive(Clone, Debug)]
struct Seen<M> {
    rates: BTreeMap<M, f64>,
    membership: u64,
}

/// Decides when epochs start, one at a time: between [`Start`] and [`EpochTrigger::ended`] it returns nothing. `M`
/// identifies models: a cluster uses ids, a federation names.
#[derive(Clone, Debug)]
pub struct EpochTrigger<M = ModelId> {
    settings: TriggerSettings,
    /// The observations of the running epoch, and whether its plan will be adopted.
    running: Option<(Seen<M>, bool)>,
    /// The observations of the last successful epoch; `None` before the first.
    planned: Option<Seen<M>>,
    ended_at: Option<Time>,
    failures: u32,
    requested: Option<bool>,
    /// Since when the rates differ.
    differs_since: Option<Time>,
}

impl<M: Ord + Clone> EpochTrigger<M> {
    /// Before the first epoch, which starts with the first observation.
    #[must_use]
    pub const fn new(settings: TriggerSettings) -> Self {
        Self {
            settings,
            running: None,
            planned: None,
            ended_at: None,
            failures: 0,
            requested: None,
            differs_since: None,
        }
    }

    /// An operator requests an epoch or a dry run. If both are pending, the real one is executed.
    pub fn request(&mut self, dry_run: bool) {
        self.requested = Some(self.requested.unwrap_or(true) && dry_run);
    }

    /// Observes the rates (of every model, in a unit that all share: requests or GPU time per second) and the version
    /// of models, GPUs and nodes. Negative rates and NaN count as zero.
    pub fn observe(&mut self, now: Time, rates: &BTreeMap<M, f64>, membership: u64) -> Option<Start> {
        if self.running.is_some() {
            return None;
        }
        let start = match self.requested.take() {
            Some(dry_run) => Start { why: Why::Operator, dry_run },
            None => Start { why: self.why(now, rates, membership)?, dry_run: self.settings.dry_run },
        };
        // A dry run does not satisfy the pending causes.
        let counts = !start.dry_run || self.settings.dry_run;
        self.running = Some((Seen { rates: rates.clone(), membership }, counts));
        Some(start)
    }

    /// The running epoch has ended. Ignored if none runs.
    pub fn ended(&mut self, now: Time, ended: Ended) {
        let Some((seen, true)) = self.running.take() else { return };
        self.ended_at = Some(now);
        self.differs_since = None;
        match ended {
            Ended::Done => {
                self.planned = Some(seen);
                self.failures = 0;
            }
            Ended::Failed => self.failures = self.failures.saturating_add(1),
        }
    }

    fn why(&mut self, now: Time, rates: &BTreeMap<M, f64>, membership: u64) -> Option<Why> {
        // Evaluated first: the duration of the change accumulates during a pause, too.
        let change = self.planned.as_ref().map_or(0.0, |planned| change(&planned.rates, rates));
        if change < self.settings.rate_change_min {
            self.differs_since = None;
        } else if self.differs_since.is_none() {
            self.differs_since = Some(now);
        }
        let doublings = self.failures.min(BACKOFF_DOUBLINGS_MAX);
        let pause = self.settings.distance_min.saturating_mul(1 << doublings);
        if self.ended_at.is_some_and(|at| now.since(at) < pause) {
            return None;
        }
        let Some(planned) = &self.planned else { return Some(Why::Membership) };
        if planned.membership != membership {
            return Some(Why::Membership);
        }
        if self.differs_since.is_some_and(|since| now.since(since) >= self.settings.change_holds) {
            return Some(Why::Rates(change));
        }
        let over = self.ended_at.is_some_and(|at| now.since(at) >= self.settings.period);
        over.then_some(Why::Period)
    }
}

/// The relative change of the rates: 0 if equal, 1 if everything moved, more if much was added. Relative to nothing,
/// any rate is a full change.
fn change<M: Ord>(before: &BTreeMap<M, f64>, now: &BTreeMap<M, f64>) -> f64 {
    let sane = |rate: f64| if rate.is_finite() { rate.max(0.0) } else { 0.0 };
    let rate = |rates: &BTreeMap<M, f64>, model: &M| sane(rates.get(model).copied().unwrap_or(0.0));
    let total = |rates: &BTreeMap<M, f64>| rates.values().map(|&rate| sane(rate)).sum::<f64>();
    let (was, is) = (total(before), total(now));
    match (was > 0.0, is > 0.0) {
        (false, false) => return 0.0,
        (true, true) => {}
        _ => return 1.0,
    }
    let models = before.keys().chain(now.keys().filter(|model| !before.contains_key(model)));
    let moved: f64 = models.map(|model| (rate(before, model) / was - rate(now, model) / is).abs()).sum();
    moved / 2.0 + (is - was).abs() / was
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: u64) -> Time {
        Time::ZERO + Nanos::from_millis(1000 * second)
    }

    fn rates(of: &[f64]) -> BTreeMap<ModelId, f64> {
        (0..).map(ModelId::new).zip(of.iter().copied()).collect()
    }

    /// After a first epoch that ended at 0 s with these rates and membership 1.
    fn planned(settings: TriggerSettings, of: &[f64]) -> EpochTrigger {
        let mut trigger = EpochTrigger::new(settings);
        assert_eq!(trigger.observe(at(0), &rates(of), 1).unwrap().why, Why::Membership);
        trigger.ended(at(0), Ended::Done);
        trigger
    }

    /// The second at which the next epoch starts, and its cause.
    fn next(trigger: &mut EpochTrigger, from: u64, of: &[f64], membership: u64) -> (u64, Why) {
        let start = (from..100_000).find_map(|s| Some((s, trigger.observe(at(s), &rates(of), membership)?)));
        start.map(|(second, start)| (second, start.why)).unwrap()
    }

    #[test]
    fn quiet_clusters_are_planned_by_the_period_and_others_after_the_least_distance() {
        let settings = TriggerSettings::default();
        assert_eq!(next(&mut planned(settings.clone(), &[5.0, 5.0]), 1, &[5.0, 5.1], 1), (300, Why::Period));
        assert_eq!(next(&mut planned(settings.clone(), &[5.0, 5.0]), 1, &[5.0, 5.0], 2), (60, Why::Membership));
        // A quarter moved.
        let (second, why) = next(&mut planned(settings.clone(), &[5.0, 5.0]), 100, &[7.5, 2.5], 1);
        assert_eq!((second, why), (110, Why::Rates(0.25)));
        // All rates doubled.
        assert_eq!(next(&mut planned(settings, &[5.0, 5.0]), 1, &[10.0, 10.0], 1), (60, Why::Rates(1.0)));
    }

    #[test]
    fn a_blip_is_no_change() {
        let mut trigger = planned(TriggerSettings::default(), &[5.0, 5.0]);
        for second in 61..299 {
            let of = if second % 10 == 0 { [5.0, 5.0] } else { [50.0, 5.0] };
            assert_eq!(trigger.observe(at(second), &rates(&of), 1), None);
        }
    }

    #[test]
    fn an_operator_waits_for_nothing_but_the_epoch_that_runs() {
        let mut trigger = planned(TriggerSettings { dry_run: true, ..TriggerSettings::default() }, &[1.0]);
        trigger.request(true);
        trigger.request(false);
        trigger.request(true);
        assert_eq!(trigger.observe(at(1), &rates(&[1.0]), 1), Some(Start { why: Why::Operator, dry_run: false }));
        trigger.request(true);
        assert_eq!(trigger.observe(at(2), &rates(&[9.0]), 2), None, "one at a time");
        trigger.ended(at(3), Ended::Done);
        assert_eq!(trigger.observe(at(3), &rates(&[1.0]), 1), Some(Start { why: Why::Operator, dry_run: true }));
        trigger.ended(at(4), Ended::Done);
        let unasked = (5..400).find_map(|second| trigger.observe(at(second), &rates(&[1.0]), 1)).unwrap();
        assert!(unasked.dry_run);
    }

    #[test]
    fn what_an_operator_only_looked_at_is_still_done() {
        let mut trigger = planned(TriggerSettings::default(), &[1.0]);
        trigger.request(true);
        assert_eq!(trigger.observe(at(59), &rates(&[1.0]), 2).map(|start| start.dry_run), Some(true));
        trigger.ended(at(59), Ended::Done);
        assert_eq!(next(&mut trigger, 59, &[1.0], 2), (60, Why::Membership));
    }

    #[test]
    fn failures_are_tried_again_after_pauses_that_grow_to_a_bound() {
        let mut trigger = planned(TriggerSettings::default(), &[1.0]);
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let (second, why) = next(&mut trigger, now + 1, &[1.0], 2);
            assert_eq!(why, Why::Membership, "what was not planned for is still to be planned for");
            pauses.push(second - now);
            now = second;
            trigger.ended(at(now), Ended::Failed);
        }
        assert_eq!(pauses, [60, 120, 240, 480, 960, 1920, 1920, 1920]);
    }

    proptest! {
        #[test]
        fn unasked_epochs_keep_their_distance_whatever_happens(
            steps in prop::collection::vec((1_u64..90, prop::collection::vec(-1.0_f64..1e9, 0..5), 0_u64..3, any::<bool>()), 1..80)
        ) {
            let settings = TriggerSettings::default();
            let mut trigger = EpochTrigger::new(settings.clone());
            let (mut now, mut last_end) = (0, None);
            for (pause, of, membership, fails) in steps {
                now += pause;
                if let Some(start) = trigger.observe(at(now), &rates(&of), membership) {
                    prop_assert_ne!(start.why, Why::Operator);
                    prop_assert!(last_end.is_none_or(|end| at(now).since(at(end)) >= settings.distance_min));
                    prop_assert_eq!(trigger.observe(at(now), &rates(&of), membership + 1), None);
                    now += pause % 7;
                    trigger.ended(at(now), if fails { Ended::Failed } else { Ended::Done });
                    last_end = Some(now);
                }
            }
        }

        #[test]
        fn a_change_is_zero_for_equals_and_never_negative(
            a in prop::collection::vec(0.0_f64..1e6, 1..6), b in prop::collection::vec(0.0_f64..1e6, 1..6)
        ) {
            prop_assert!(change(&rates(&a), &rates(&a)) < 1e-9);
            prop_assert!(change(&rates(&a), &rates(&b)) >= 0.0);
        }
    }
}
