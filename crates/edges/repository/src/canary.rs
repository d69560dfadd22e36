//! A new version gets a part of the requests first. Pure, as the rollout that it is a part of.

use std::time::{Duration, Instant};

use symphony_protocol::view::{Traffic, View};
use symphony_types::Token;

/// How often it is looked at what the new version does with its requests: as often as leads report.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// Requests that a step takes to say anything.
const REQUESTS_MIN: u64 = 50;

/// A step that sees fewer requests goes on for at most so many times its length.
const STEP_STRETCH_MAX: u32 = 10;

/// How a new version is tried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Canary {
    /// What it gets of the requests that name no version, in per cent, step by step; each from 1 to 99.
    pub percents: Vec<u32>,
    /// How long a step lasts.
    pub step: Duration,
    /// The part of its requests that may be given up or fail; if it is more, it gets nothing any more.
    pub bad_max: f64,
}

/// A trial under way.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    canary: Canary,
    /// The split without the new version, once it is known.
    before: Option<Traffic>,
    steps_done: usize,
    /// When the step began, and what had been counted by then.
    step: Option<(Instant, TrialCounts)>,
    failure: Option<String>,
}

/// What becomes of a trial now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TrialStep {
    /// The traffic is to be split so.
    Split(Traffic),
    /// Look again after so long.
    Wait(Duration),
    /// The new version has passed.
    Over,
}

/// What a lead has counted of a model's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrialCounts {
    /// The lead: another one counts anew.
    pub(crate) token: Token,
    /// Requests that were given up, or got no result.
    pub(crate) bad: u64,
    /// Requests that were given up, or whose batch ran.
    pub(crate) ended: u64,
}

impl TrialCounts {
    /// Of the model of that name, by the last report of its lead; nothing if the view has none.
    pub(crate) fn of(view: &View, loaded_as: &str) -> Self {
        let found = view.model_named(loaded_as).and_then(|(id, model)| {
            let load = view.subclusters.get(&model.subcluster)?.load.as_ref()?;
            Some((load.token, load.models.get(&id)?))
        });
        found.map_or(Self::default(), |(token, counts)| Self {
            token,
            bad: counts.dropped + counts.failed,
            ended: counts.dropped + counts.executed,
        })
    }

    /// What was counted since `before`.
    fn since(self, before: Self) -> Self {
        if self.token != before.token {
            return self;
        }
        Self {
            token: self.token,
            bad: self.bad.saturating_sub(before.bad),
            ended: self.ended.saturating_sub(before.ended),
        }
    }
}

impl Trial {
    pub(crate) fn of(canary: Canary) -> Self {
        Self { canary, before: None, steps_done: 0, step: None, failure: None }
    }

    pub(crate) const fn has_begun(&self) -> bool {
        self.before.is_some()
    }

    /// The traffic is split so until the new version is ready.
    pub(crate) fn begin(&mut self, before: Traffic) {
        self.before = Some(before);
    }

    /// Why the new version was taken back, if it was.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Decides by the split that the view has, and what the lead has counted of the version `newest`.
    pub(crate) fn step(
        &mut self,
        now: Instant,
        split: Option<&Traffic>,
        newest: u64,
        counts: TrialCounts,
    ) -> TrialStep {
        let Some(before) = &self.before else { return TrialStep::Over };
        let Some(&percent) = self.canary.percents.get(self.steps_done) else { return TrialStep::Over };
        let wanted = with_part(before, newest, percent);
        if split != Some(&wanted) {
            self.step = None;
            return TrialStep::Split(wanted);
        }
        let (since, first) = *self.step.get_or_insert((now, counts));
        let (lasted, seen) = (now.saturating_duration_since(since), counts.since(first));
        let is_enough = seen.ended >= REQUESTS_MIN;
        let words = if is_enough && seen.bad as f64 > self.canary.bad_max * seen.ended as f64 {
            format!("{} of {} requests were given up or failed", seen.bad, seen.ended)
        } else if !is_enough && lasted >= self.canary.step * STEP_STRETCH_MAX {
            let seconds = lasted.as_secs();
            format!("it had {} requests in {seconds} s, and {REQUESTS_MIN} are needed to say anything", seen.ended)
        } else if is_enough && lasted >= self.canary.step {
            (self.steps_done, self.step) = (self.steps_done + 1, None);
            return self.step(now, split, newest, counts);
        } else {
            return TrialStep::Wait(LOOKS_EVERY);
        };
        self.failure = Some(format!("version {newest} got {percent} % of the requests, and {words}; it gets none now"));
        TrialStep::Split(before.clone())
    }
}

/// The split in which the version gets so many per cent, and the others share the rest as before.
fn with_part(before: &Traffic, version: u64, percent: u32) -> Traffic {
    let total: u64 = before.weights.values().map(|&weight| u64::from(weight)).sum::<u64>().max(1);
    let rest = |weight: u32| (u64::from(weight) * u64::from(100 - percent) * 1000 / total).max(1) as u32;
    let mut weights: std::collections::BTreeMap<_, _> =
        before.weights.iter().map(|(&version, &weight)| (version, rest(weight))).collect();
    weights.insert(version, percent * 1000);
    Traffic { weights, shadow: before.shadow }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_secs(60);

    fn trial() -> Trial {
        let mut trial = Trial::of(Canary { percents: vec![5, 50], step: STEP, bad_max: 0.02 });
        trial.begin(Traffic { weights: [(1, 1)].into(), shadow: None });
        trial
    }

    fn counts(bad: u64, ended: u64) -> TrialCounts {
        TrialCounts { token: Token::new(7), bad, ended }
    }

    fn split(old: u32, new: u32) -> Traffic {
        Traffic { weights: [(1, old), (2, new)].into(), shadow: None }
    }

    #[test]
    fn a_version_that_answers_well_gets_more_step_by_step() {
        let (mut trial, start) = (trial(), Instant::now());
        let kept = Traffic { weights: [(1, 1)].into(), shadow: None };
        let (first, second) = (split(95_000, 5000), split(50_000, 50_000));
        assert_eq!(trial.step(start, Some(&kept), 2, counts(9, 9)), TrialStep::Split(first.clone()));
        assert_eq!(trial.step(start, Some(&first), 2, counts(9, 9)), TrialStep::Wait(LOOKS_EVERY));
        // What was counted before the step does not count: 1 of 51, which is less than a fiftieth.
        assert_eq!(trial.step(start + STEP / 2, Some(&first), 2, counts(10, 60)), TrialStep::Wait(LOOKS_EVERY));
        assert_eq!(trial.step(start + STEP, Some(&first), 2, counts(10, 60)), TrialStep::Split(second.clone()));
        let again = start + STEP;
        assert_eq!(trial.step(again, Some(&second), 2, counts(10, 60)), TrialStep::Wait(LOOKS_EVERY));
        // Another lead has counted from nothing.
        let elsewhere = TrialCounts { token: Token::new(9), bad: 0, ended: 50 };
        assert_eq!(trial.step(again + STEP, Some(&second), 2, elsewhere), TrialStep::Over);
        assert_eq!(trial.failure(), None);
    }

    #[test]
    fn a_version_that_answers_badly_is_taken_back_at_once() {
        let (mut trial, start) = (trial(), Instant::now());
        let first = split(95_000, 5000);
        assert_eq!(trial.step(start, Some(&first), 2, counts(0, 0)), TrialStep::Wait(LOOKS_EVERY));
        assert_eq!(trial.step(start + LOOKS_EVERY, Some(&first), 2, counts(9, 49)), TrialStep::Wait(LOOKS_EVERY));
        let before = Traffic { weights: [(1, 1)].into(), shadow: None };
        assert_eq!(trial.step(start + 2 * LOOKS_EVERY, Some(&first), 2, counts(9, 50)), TrialStep::Split(before));
        assert_eq!(
            trial.failure(),
            Some("version 2 got 5 % of the requests, and 9 of 50 requests were given up or failed; it gets none now")
        );
    }

    #[test]
    fn a_step_without_requests_says_nothing_and_ends_some_day() {
        let (mut trial, start) = (trial(), Instant::now());
        let first = split(95_000, 5000);
        assert_eq!(trial.step(start, Some(&first), 2, counts(0, 0)), TrialStep::Wait(LOOKS_EVERY));
        assert_eq!(trial.step(start + 9 * STEP, Some(&first), 2, counts(0, 49)), TrialStep::Wait(LOOKS_EVERY));
        assert!(matches!(trial.step(start + 10 * STEP, Some(&first), 2, counts(0, 49)), TrialStep::Split(_)));
        assert!(trial.failure().unwrap().contains("49 requests in 600 s"), "{:?}", trial.failure());
    }

    #[test]
    fn the_others_share_the_rest_as_before() {
        let before = Traffic { weights: [(1, 3), (2, 1)].into(), shadow: None };
        assert_eq!(with_part(&before, 3, 20).weights, [(1, 60_000), (2, 20_000), (3, 20_000)].into());
        assert_eq!(with_part(&before, 2, 20).weights, [(1, 60_000), (2, 20_000)].into(), "it had a part");
    }
}
