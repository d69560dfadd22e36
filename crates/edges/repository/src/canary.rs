//! A new version gets a part of the requests first. Pure, as the rollout that it is a part of.

use std::time::{Duration, Instant};

use symphony_protocol::view::{PipelineLoadView, Traffic, View};
use symphony_types::Token;

/// How often the new version's results are checked: as often as leads report.
pub(crate) const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The fewest requests by which a step can be judged.
const REQUESTS_MIN: u64 = 50;

/// The latest results are judged separately, in windows of this length: in a long step, a good hour would hide for
/// minutes that the version has become bad.
const LATELY: Duration = Duration::from_secs(30);

/// A window fails only with this many times what a whole step may have: there are many windows, and each has few
/// requests.
const LATELY_FACTOR: f64 = 5.0;

/// A step that sees fewer requests lasts for at most this many times its length.
const STEP_STRETCH_MAX: u32 = 10;

/// How a new version is tried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Canary {
    /// What it gets of the requests that name no version, in per cent, step by step; each from 1 to 99.
    pub percents: Vec<u32>,
    /// How long a step lasts.
    pub step: Duration,
    /// The part of its requests that may be given up, late or failed beyond that of the versions before in the same
    /// time; if it is more in a step, or five times as much within half a minute, it gets nothing any more.
    pub bad_max: f64,
}

/// A trial under way.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    canary: Canary,
    /// The split without the new version, once it is known.
    before: Option<Traffic>,
    steps_done: usize,
    step: Option<StepUnderWay>,
    failure: Option<String>,
}

/// A step, of the new version and of the others.
#[derive(Clone, Copy, Debug)]
struct StepUnderWay {
    since: Instant,
    /// What leads had counted at the last check.
    known: [TrialCounts; 2],
    /// What they have counted since the step began, one after the other.
    seen: [TrialCounts; 2],
    /// The same since the window began that is under way.
    lately: [TrialCounts; 2],
    lately_since: Instant,
}

/// What to do with a trial now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TrialStep {
    /// The traffic is to be split so.
    Split(Traffic),
    /// Look again after this time.
    Wait(Duration),
    /// The new version has passed.
    Over,
}

/// What a lead has counted of a model's requests, or the leader of the control group of those for a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrialCounts {
    /// Whose counts these are: another one counts from zero.
    pub(crate) token: Token,
    /// Requests that were given up, late, or got no result.
    pub(crate) bad: u64,
    /// Requests that were given up, or whose batch ran; for a pipeline, all that have ended.
    pub(crate) ended: u64,
}

impl TrialCounts {
    /// Of the model of that name, by the last report of its lead; none if the view has no load in it.
    pub(crate) fn of(view: &View, loaded_as: &str) -> Option<Self> {
        let (id, model) = view.model_named(loaded_as)?;
        let load = view.subclusters.get(&model.subcluster)?.load.as_ref()?;
        let counts = load.models.get(&id).cloned().unwrap_or_default();
        let bad = counts.dropped + counts.failed + counts.late;
        Some(Self { token: load.token, bad, ended: counts.dropped + counts.executed })
    }

    /// Of the version of a pipeline of that name; none if the view has no loads in it.
    pub(crate) fn of_pipeline(view: &View, loaded_as: &str) -> Option<Self> {
        let PipelineLoadView { since, ended, bad } = view.pipelines.get(loaded_as)?.load?;
        Some(Self { token: Token::new(since), bad, ended })
    }

    /// Of two models together, or of another one of the same lead.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            token: self.token.max(other.token),
            bad: self.bad.saturating_add(other.bad),
            ended: self.ended.saturating_add(other.ended),
        }
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

    /// The part that was bad; none if they are too few to judge.
    fn bad_part(self) -> Option<f64> {
        (self.ended >= REQUESTS_MIN).then(|| self.bad as f64 / self.ended as f64)
    }
}

impl StepUnderWay {
    fn begin(now: Instant, known: [TrialCounts; 2]) -> Self {
        let none = [TrialCounts::default(); 2];
        Self { since: now, known, seen: none, lately: none, lately_since: now }
    }

    /// Adds what leads have counted since the last check.
    fn take(&mut self, now: Instant, counts: [TrialCounts; 2]) {
        let new = [0, 1].map(|at| counts[at].since(self.known[at]));
        self.known = counts;
        if now.saturating_duration_since(self.lately_since) >= LATELY {
            (self.lately_since, self.lately) = (now, [TrialCounts::default(); 2]);
        }
        for at in [0, 1] {
            self.seen[at] = self.seen[at].and(new[at]);
            self.lately[at] = self.lately[at].and(new[at]);
        }
    }

    /// What the version is judged by: counts, by how much the bad part may exceed the given one, and when that was.
    const fn windows(&self) -> [([TrialCounts; 2], f64, &'static str); 2] {
        [(self.seen, 1.0, ""), (self.lately, LATELY_FACTOR, " within half a minute")]
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

    /// Why the new version was rolled back, if it was.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The split without the new version, if it gets requests already.
    pub(crate) fn is_under_way(&self) -> bool {
        self.step.is_some() || self.steps_done > 0
    }

    /// The versions that the new one is compared with.
    pub(crate) fn others(&self) -> impl Iterator<Item = u64> {
        self.before.iter().flat_map(|before| before.weights.keys().copied())
    }

    /// The new version gets nothing any more; how the traffic is split instead.
    pub(crate) fn roll_back(&mut self, newest: u64, why: &str) -> TrialStep {
        let Some(before) = self.before.clone() else { return TrialStep::Over };
        let percent = self.canary.percents.get(self.steps_done).copied().unwrap_or(100);
        self.failure = Some(format!("version {newest} got {percent} % of the requests, and {why}; it gets none now"));
        TrialStep::Split(before)
    }

    /// Decides by the split that the view has, and what leads have counted of the version `newest` and of the others;
    /// none if the view has no load in it.
    pub(crate) fn step(
        &mut self,
        now: Instant,
        split: Option<&Traffic>,
        newest: u64,
        counts: Option<[TrialCounts; 2]>,
    ) -> TrialStep {
        let Some(before) = &self.before else { return TrialStep::Over };
        let Some(&percent) = self.canary.percents.get(self.steps_done) else { return TrialStep::Over };
        let wanted = with_part(before, newest, percent);
        if split != Some(&wanted) {
            self.step = None;
            return TrialStep::Split(wanted);
        }
        let Some(counts) = counts else { return TrialStep::Wait(CHECK_EVERY) };
        let step = self.step.get_or_insert_with(|| StepUnderWay::begin(now, counts));
        step.take(now, counts);
        let (windows, [seen, _]) = (step.windows(), step.seen);
        let lasted = now.saturating_duration_since(step.since);
        for ([seen, others], factor, when) in windows {
            let allowed = factor * self.canary.bad_max + others.bad_part().unwrap_or(0.0);
            if seen.bad_part().is_some_and(|bad| bad > allowed) {
                let why = format!("{} of {} requests were given up, late or failed{when}", seen.bad, seen.ended);
                return self.roll_back(newest, &why);
            }
        }
        match seen.bad_part() {
            Some(_) if lasted >= self.canary.step => {
                (self.steps_done, self.step) = (self.steps_done + 1, None);
                self.step(now, split, newest, Some(counts))
            }
            None if lasted >= self.canary.step * STEP_STRETCH_MAX => {
                let (seconds, ended) = (lasted.as_secs(), seen.ended);
                let why = format!("had {ended} in {seconds} s, where {REQUESTS_MIN} are needed to say anything");
                self.roll_back(newest, &why)
            }
            _ => TrialStep::Wait(CHECK_EVERY),
        }
    }
}

/// The split in which the version gets this many per cent, and the others share the rest as before.
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

    const NONE: TrialCounts = TrialCounts { token: Token::new(7), bad: 0, ended: 0 };

    #[test]
    fn a_version_that_answers_well_gets_more_step_by_step() {
        let (mut trial, start) = (trial(), Instant::now());
        let kept = Traffic { weights: [(1, 1)].into(), shadow: None };
        let (first, second) = (split(95_000, 5000), split(50_000, 50_000));
        let mut at = |after, split: &Traffic, of| trial.step(start + after, Some(split), 2, of);
        assert_eq!(at(Duration::ZERO, &kept, None), TrialStep::Split(first.clone()));
        assert!(matches!(at(Duration::ZERO, &first, None), TrialStep::Wait(_)), "nobody has said anything yet");
        assert!(matches!(at(CHECK_EVERY, &first, Some([counts(9, 9), NONE])), TrialStep::Wait(_)));
        // What was counted before the step does not count: 1 of 51, which is less than a fiftieth.
        assert!(matches!(at(STEP / 2, &first, Some([counts(10, 60), NONE])), TrialStep::Wait(_)));
        let over = CHECK_EVERY + STEP;
        assert_eq!(at(over, &first, Some([counts(10, 60), NONE])), TrialStep::Split(second.clone()));
        assert!(matches!(at(over, &second, Some([counts(10, 60), NONE])), TrialStep::Wait(_)));
        // Another lead counts from nothing, and both count.
        assert!(matches!(at(over + STEP / 2, &second, Some([counts(10, 90), NONE])), TrialStep::Wait(_)));
        let elsewhere = TrialCounts { token: Token::new(9), bad: 0, ended: 20 };
        assert_eq!(at(over + STEP, &second, Some([elsewhere, NONE])), TrialStep::Over);
        assert_eq!(trial.failure(), None);
    }

    #[test]
    fn a_version_that_answers_badly_is_taken_back_at_once() {
        let (mut trial, start) = (trial(), Instant::now());
        let first = split(95_000, 5000);
        let mut at = |after, of| trial.step(start + after, Some(&first), 2, Some([of, NONE]));
        assert!(matches!(at(Duration::ZERO, counts(0, 0)), TrialStep::Wait(_)));
        assert!(matches!(at(CHECK_EVERY, counts(9, 49)), TrialStep::Wait(_)));
        let before = Traffic { weights: [(1, 1)].into(), shadow: None };
        assert_eq!(at(2 * CHECK_EVERY, counts(9, 50)), TrialStep::Split(before));
        let words =
            "version 2 got 5 % of the requests, and 9 of 50 requests were given up, late or failed; it gets none now";
        assert_eq!(trial.failure(), Some(words));
    }

    #[test]
    fn a_version_that_goes_bad_late_in_a_long_step_is_taken_back_by_what_it_did_lately() {
        let mut trial = Trial::of(Canary { percents: vec![5], step: Duration::from_secs(3600), bad_max: 0.02 });
        let before = Traffic { weights: [(1, 1)].into(), shadow: None };
        trial.begin(before.clone());
        let (start, first) = (Instant::now(), split(95_000, 5000));
        let mut at = |seconds, of| trial.step(start + Duration::from_secs(seconds), Some(&first), 2, Some([of, NONE]));
        assert!(matches!(at(0, counts(0, 0)), TrialStep::Wait(_)));
        assert!(matches!(at(1800, counts(0, 18_000)), TrialStep::Wait(_)));
        assert!(matches!(at(1830, counts(0, 18_000)), TrialStep::Wait(_)));
        // 4 % of a hundred may be chance.
        assert!(matches!(at(1831, counts(4, 18_100)), TrialStep::Wait(_)));
        assert_eq!(at(1836, counts(30, 18_160)), TrialStep::Split(before));
        let words = "30 of 160 requests were given up, late or failed within half a minute";
        assert!(trial.failure().is_some_and(|reason| reason.contains(words)), "{:?}", trial.failure());
    }

    #[test]
    fn where_the_others_answer_badly_too_it_may() {
        let (mut trial, start) = (trial(), Instant::now());
        let first = split(95_000, 5000);
        let mut at = |after, of| trial.step(start + after, Some(&first), 2, Some(of));
        assert!(matches!(at(Duration::ZERO, [NONE, NONE]), TrialStep::Wait(_)));
        assert!(matches!(at(CHECK_EVERY, [counts(11, 100), counts(100, 1000)]), TrialStep::Wait(_)));
        assert!(matches!(at(2 * CHECK_EVERY, [counts(13, 100), counts(100, 1000)]), TrialStep::Split(_)));
    }

    #[test]
    fn a_step_without_requests_says_nothing_and_ends_some_day() {
        let (mut trial, start) = (trial(), Instant::now());
        let first = split(95_000, 5000);
        let mut at = |after, of| trial.step(start + after, Some(&first), 2, Some([of, NONE]));
        assert!(matches!(at(Duration::ZERO, counts(0, 0)), TrialStep::Wait(_)));
        assert!(matches!(at(9 * STEP, counts(0, 49)), TrialStep::Wait(_)));
        assert!(matches!(at(10 * STEP, counts(0, 49)), TrialStep::Split(_)));
        assert!(trial.failure().unwrap().contains("had 49 in 600 s"), "{:?}", trial.failure());
    }

    #[test]
    fn the_others_share_the_rest_as_before() {
        let before = Traffic { weights: [(1, 3), (2, 1)].into(), shadow: None };
        assert_eq!(with_part(&before, 3, 20).weights, [(1, 60_000), (2, 20_000), (3, 20_000)].into());
        assert_eq!(with_part(&before, 2, 20).weights, [(1, 60_000), (2, 20_000)].into(), "it had a part");
    }
}
