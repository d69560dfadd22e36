//! What became of requests over the last hour, by model and slots of ten seconds: so that a console that is opened
//! shows what was before. Pure: time is an argument, and never goes back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use symphony_types::{DropReason, FailReason, Nanos, Outcome, RequestId};

use crate::buckets::REQUEST_SECONDS;

/// The length of a slot in seconds.
pub const SLOT_S: u64 = 10;
/// Slots of a model: an hour of them. Those without requests take no memory.
pub const SLOTS_MAX: u64 = 3600 / SLOT_S;
/// Models that are remembered. One that is busy all the time takes 100 KB, 40 more for examples, and 150 more if it
/// loses requests in every slot: 140 to 290 KB, so all of them 150 MB at most.
pub const MODELS_MAX: usize = 512;
/// Full slots that an overview sums up, beside the present one: a minute, as long as people look back for "now".
pub const RECENT_SLOTS: u64 = 6;
/// Slots in a point of an overview's trend: two minutes, so that an hour has thirty points.
pub const TREND_SLOTS: u64 = 12;
/// Single requests are remembered for this many slots, ten minutes: leaders can explain them for no longer.
const EXAMPLE_SLOTS: u64 = 60;
/// Single requests of each kind in a slot: some to compare, and little memory.
const EXAMPLES_PER_SLOT: usize = 4;
/// Single requests of each kind in an answer: more than a person reads.
const EXAMPLES_SHOWN_MAX: usize = 20;
/// One for each bound, and one beyond the last.
const BUCKETS: usize = REQUEST_SECONDS.len() + 1;

/// What became of one request.
#[derive(Clone, Copy, Debug)]
pub struct RequestEnd {
    /// Its name; none if it was not accepted under one.
    pub request: Option<RequestId>,
    /// How it ended.
    pub outcome: Outcome,
    /// Its items, at least one.
    pub items: u32,
    /// From its arrival to its outcome.
    pub elapsed: Duration,
    /// Items of its batch, and how long that ran; none if none did.
    pub ran: Option<(u32, Nanos)>,
}

/// Requests of a stretch of time by outcome, and what they took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Answered in time.
    pub in_time: u64,
    /// Answered late.
    pub late: u64,
    /// Given up by a scheduler.
    pub dropped: u64,
    /// Ended without an answer in any other way.
    pub failed: u64,
    /// Withdrawn by their clients.
    pub cancelled: u64,
    /// Refused before they were accepted; not in the others.
    pub refused: u64,
    /// Items of requests that ran.
    pub items: u64,
    /// Their batches: a request with a third of a batch's items is a third of a batch.
    pub batches: f64,
    /// Seconds that requests waited without running, summed: over a stretch of time, the mean number that waits is
    /// this by its length (Little's law).
    pub waited_s: f64,
    /// Requests with an outcome by the time to it, in the buckets of [`REQUEST_SECONDS`]; empty if there were none.
    pub latency: Vec<u64>,
    /// Requests that were dropped, failed or refused, by `outcome reason`.
    pub reasons: BTreeMap<String, u64>,
}

impl Counts {
    /// Adds what was counted elsewhere or at another time.
    pub fn add(&mut self, other: &Self) {
        self.in_time += other.in_time;
        self.late += other.late;
        self.dropped += other.dropped;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.refused += other.refused;
        self.items += other.items;
        self.batches += other.batches;
        self.waited_s += other.waited_s;
        self.latency.resize(self.latency.len().max(other.latency.len()), 0);
        for (sum, count) in self.latency.iter_mut().zip(&other.latency) {
            *sum += count;
        }
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
    }

    /// Requests with an outcome.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.in_time + self.late + self.dropped + self.failed + self.cancelled
    }

    /// Requests that got no answer in time.
    #[must_use]
    pub const fn bad(&self) -> u64 {
        self.late + self.dropped + self.failed
    }

    /// Milliseconds within which this share of the requests had their outcome.
    #[must_use]
    pub fn quantile_ms(&self, share: f64) -> Option<f64> {
        crate::buckets::quantile(&REQUEST_SECONDS, &self.latency, share).map(|seconds| seconds * 1e3)
    }

    /// Items of a batch in the mean.
    #[must_use]
    pub fn mean_batch(&self) -> Option<f64> {
        (self.batches > 0.0).then(|| self.items as f64 / self.batches)
    }
}

/// One request to look at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Example {
    /// Its name, by which it can be explained.
    pub request: String,
    /// When it ended.
    pub at_unix_ms: u64,
    /// From its arrival to its outcome.
    pub elapsed_ms: f64,
    /// Stable label of its outcome.
    pub outcome: String,
    /// Why; empty for answers.
    pub reason: String,
}

/// All models in short.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overview {
    /// The release of the process that counted.
    pub version: String,
    /// The boot of the process that counted, as it reports itself: an address may lead to another one.
    pub boot: u64,
    /// Since when it has counted.
    pub began_unix_ms: u64,
    /// The time that `recent` is about.
    pub over_s: f64,
    /// The bounds of the buckets.
    pub bounds_s: Vec<f64>,
    /// By model; the empty name has calls that were refused before it was known which model they are for.
    pub models: BTreeMap<String, Summary>,
    /// Requests of models that are not remembered, because there are too many.
    pub left_out: u64,
}

/// A model in short.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// The last minute.
    pub recent: Counts,
    /// The last hour: requests that ended or were refused, and those of them that got no answer in time.
    pub trend: Vec<[u64; 2]>,
}

/// The last hour of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Series {
    /// As in an overview.
    pub boot: u64,
    /// Since when the process has counted.
    pub began_unix_ms: u64,
    /// The bounds of the buckets.
    pub bounds_s: Vec<f64>,
    /// By begin in seconds since 1970; those without requests are left out.
    pub slots: BTreeMap<u64, Counts>,
    /// Those that ran and took longest, longest first.
    pub slowest: Vec<Example>,
    /// Those that were dropped or failed, newest first.
    pub unserved: Vec<Example>,
}

/// What one process counted.
pub trait Counted {
    /// The boot of that process.
    fn boot(&self) -> u64;
}

impl Counted for Overview {
    fn boot(&self) -> u64 {
        self.boot
    }
}

impl Counted for Series {
    fn boot(&self) -> u64 {
        self.boot
    }
}

impl Overview {
    /// Adds what another process counted; whatever was counted by other bounds has no latencies.
    pub fn add(&mut self, other: Self) {
        self.began_unix_ms = match self.began_unix_ms {
            0 => other.began_unix_ms,
            began => began.min(other.began_unix_ms),
        };
        self.over_s = self.over_s.max(other.over_s);
        self.left_out += other.left_out;
        let same_bounds = other.bounds_s == REQUEST_SECONDS;
        for (model, mut summary) in other.models {
            if !same_bounds {
                summary.recent.latency.clear();
            }
            let sum = self.models.entry(model).or_default();
            sum.recent.add(&summary.recent);
            sum.trend.resize(sum.trend.len().max(summary.trend.len()), [0; 2]);
            // The newest point is the last one.
            for (sum, point) in sum.trend.iter_mut().rev().zip(summary.trend.iter().rev()) {
                *sum = [sum[0] + point[0], sum[1] + point[1]];
            }
        }
    }
}

impl Series {
    /// Adds what another process counted; whatever was counted by other bounds has no latencies.
    pub fn add(&mut self, other: Self) {
        self.began_unix_ms = match self.began_unix_ms {
            0 => other.began_unix_ms,
            began => began.min(other.began_unix_ms),
        };
        let same_bounds = other.bounds_s == REQUEST_SECONDS;
        for (at, mut counts) in other.slots {
            if !same_bounds {
                counts.latency.clear();
            }
            self.slots.entry(at).or_default().add(&counts);
        }
        self.slowest.extend(other.slowest);
        self.unserved.extend(other.unserved);
        self.sort();
    }

    fn sort(&mut self) {
        self.slowest.sort_by(|one, other| other.elapsed_ms.total_cmp(&one.elapsed_ms));
        self.slowest.truncate(EXAMPLES_SHOWN_MAX);
        self.unserved.sort_by_key(|example| std::cmp::Reverse(example.at_unix_ms));
        self.unserved.truncate(EXAMPLES_SHOWN_MAX);
    }
}

/// A request that is kept as an example.
#[derive(Clone, Copy, Debug)]
struct Kept {
    request: RequestId,
    at_unix_ms: u64,
    elapsed: Duration,
    outcome: &'static str,
    reason: &'static str,
}

impl Kept {
    fn shown(&self) -> Example {
        Example {
            request: self.request.to_string(),
            at_unix_ms: self.at_unix_ms,
            elapsed_ms: self.elapsed.as_secs_f64() * 1e3,
            outcome: self.outcome.to_owned(),
            reason: self.reason.to_owned(),
        }
    }
}

/// The requests of a model in ten seconds; 32 bits count more than come in that time.
#[derive(Clone, Debug)]
struct Slot {
    /// Its number since 1970.
    number: u64,
    in_time: u32,
    late: u32,
    dropped: u32,
    failed: u32,
    cancelled: u32,
    refused: u32,
    items: u32,
    batches: f32,
    waited_s: f32,
    latency: [u32; BUCKETS],
    /// Few: reasons are closed sets.
    reasons: BTreeMap<(&'static str, &'static str), u32>,
    slowest: Vec<Kept>,
    unserved: Vec<Kept>,
}

impl Slot {
    const fn new(number: u64) -> Self {
        Self {
            number,
            in_time: 0,
            late: 0,
            dropped: 0,
            failed: 0,
            cancelled: 0,
            refused: 0,
            items: 0,
            batches: 0.0,
            waited_s: 0.0,
            latency: [0; BUCKETS],
            reasons: BTreeMap::new(),
            slowest: Vec::new(),
            unserved: Vec::new(),
        }
    }

    fn ended(&mut self, at_unix_ms: u64, end: &RequestEnd) {
        let (outcome, reason) = (end.outcome.label(), reason(end.outcome));
        let count = match end.outcome {
            Outcome::InTime => &mut self.in_time,
            Outcome::Late => &mut self.late,
            Outcome::Dropped(_) => &mut self.dropped,
            Outcome::Failed(_) => &mut self.failed,
            Outcome::Cancelled => &mut self.cancelled,
        };
        *count = count.saturating_add(1);
        if !reason.is_empty() {
            *self.reasons.entry((outcome, reason)).or_default() += 1;
        }
        let elapsed_s = end.elapsed.as_secs_f64();
        self.latency[REQUEST_SECONDS.partition_point(|&bound| bound < elapsed_s)] += 1;
        let executed_s = end.ran.map_or(0.0, |(_, execution)| execution.as_secs_f64());
        self.waited_s += (elapsed_s - executed_s).max(0.0) as f32;
        if let Some((batch, _)) = end.ran {
            self.items = self.items.saturating_add(end.items);
            self.batches += (f64::from(end.items) / f64::from(batch.max(1))) as f32;
        }
        let Some(request) = end.request else { return };
        let kept = Kept { request, at_unix_ms, elapsed: end.elapsed, outcome, reason };
        match end.outcome {
            Outcome::InTime | Outcome::Late => keep_slow(&mut self.slowest, kept),
            Outcome::Dropped(_) | Outcome::Failed(_) => keep_newest(&mut self.unserved, kept),
            Outcome::Cancelled => {}
        }
    }

    fn counts(&self) -> Counts {
        let reasons = self.reasons.iter();
        let mut latency: Vec<_> = self.latency.iter().map(|&count| u64::from(count)).collect();
        if latency.iter().all(|&count| count == 0) {
            latency.clear();
        }
        Counts {
            in_time: self.in_time.into(),
            late: self.late.into(),
            dropped: self.dropped.into(),
            failed: self.failed.into(),
            cancelled: self.cancelled.into(),
            refused: self.refused.into(),
            items: self.items.into(),
            batches: self.batches.into(),
            waited_s: self.waited_s.into(),
            latency,
            reasons: reasons.map(|((kind, why), &count)| (format!("{kind} {why}"), count.into())).collect(),
        }
    }

    const fn has_examples(&self) -> bool {
        !self.slowest.is_empty() || !self.unserved.is_empty()
    }

    /// Requests that ended or were refused, and those that got no answer in time.
    fn trend(&self) -> [u64; 2] {
        let bad = [self.late, self.dropped, self.failed, self.refused].map(u64::from).iter().sum::<u64>();
        [bad + u64::from(self.in_time) + u64::from(self.cancelled), bad]
    }
}

const fn reason(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Dropped(reason) => DropReason::label(reason),
        Outcome::Failed(reason) => FailReason::label(reason),
        Outcome::InTime | Outcome::Late | Outcome::Cancelled => "",
    }
}

fn keep_slow(slowest: &mut Vec<Kept>, kept: Kept) {
    if slowest.len() < EXAMPLES_PER_SLOT {
        slowest.push(kept);
    } else if let Some(fastest) = slowest.iter_mut().min_by_key(|other| other.elapsed)
        && fastest.elapsed < kept.elapsed
    {
        *fastest = kept;
    }
}

fn keep_newest(newest: &mut Vec<Kept>, kept: Kept) {
    if newest.len() >= EXAMPLES_PER_SLOT {
        newest.remove(0);
    }
    newest.push(kept);
}

/// The last hour of all models of a process.
#[derive(Clone, Debug)]
pub struct History {
    began_unix_ms: u64,
    /// Slots are shared with their readers, so that a copy is made quickly.
    models: BTreeMap<String, VecDeque<Arc<Slot>>>,
    left_out: u64,
    /// The slot in which it was last looked for models without requests.
    looked: u64,
}

/// The last hour of one model.
#[derive(Clone, Debug)]
pub struct ModelHistory {
    began_unix_ms: u64,
    slots: VecDeque<Arc<Slot>>,
}

impl ModelHistory {
    /// As it travels; nothing of a model that had no requests.
    #[must_use]
    pub fn series(&self, now_unix_ms: u64) -> Series {
        let now = slot_of(now_unix_ms);
        let slots: Vec<_> = self.slots.iter().filter(|slot| slot.number + SLOTS_MAX > now).collect();
        let examples = |of: fn(&Slot) -> &Vec<Kept>| {
            let young = slots.iter().filter(|slot| slot.number + EXAMPLE_SLOTS > now);
            young.flat_map(|slot| of(slot)).map(Kept::shown).collect::<Vec<_>>()
        };
        let mut series = Series {
            boot: 0,
            began_unix_ms: self.began_unix_ms,
            bounds_s: REQUEST_SECONDS.to_vec(),
            slots: slots.iter().map(|slot| (slot.number * SLOT_S, slot.counts())).collect(),
            slowest: examples(|slot| &slot.slowest),
            unserved: examples(|slot| &slot.unserved),
        };
        series.sort();
        series
    }
}

const fn slot_of(unix_ms: u64) -> u64 {
    unix_ms / 1000 / SLOT_S
}

impl History {
    /// Nothing yet.
    #[must_use]
    pub const fn new(now_unix_ms: u64) -> Self {
        Self { began_unix_ms: now_unix_ms, models: BTreeMap::new(), left_out: 0, looked: 0 }
    }

    /// A request of a model has its outcome.
    pub fn ended(&mut self, now_unix_ms: u64, model: &str, end: &RequestEnd) {
        if let Some(slot) = self.slot(slot_of(now_unix_ms), model) {
            slot.ended(now_unix_ms, end);
        }
    }

    /// A request for a model was refused before it was accepted.
    pub fn refused(&mut self, now_unix_ms: u64, model: &str, reason: &'static str) {
        if let Some(slot) = self.slot(slot_of(now_unix_ms), model) {
            slot.refused = slot.refused.saturating_add(1);
            *slot.reasons.entry(("refused", reason)).or_default() += 1;
        }
    }

    /// All models in short, as [`History::heading`] and [`History::summary`] say it.
    #[must_use]
    pub fn overview(&self, now_unix_ms: u64) -> Overview {
        let mut overview = self.heading(now_unix_ms);
        for (model, summary) in &mut overview.models {
            *summary = self.summary(now_unix_ms, model);
        }
        overview
    }

    /// An overview without the models, which a caller that counts under a lock asks for one by one.
    #[must_use]
    pub fn heading(&self, now_unix_ms: u64) -> Overview {
        let recent_from = slot_of(now_unix_ms).saturating_sub(RECENT_SLOTS);
        let from_ms = (recent_from * SLOT_S * 1000).max(self.began_unix_ms);
        Overview {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            boot: 0,
            began_unix_ms: self.began_unix_ms,
            over_s: now_unix_ms.saturating_sub(from_ms) as f64 / 1e3,
            bounds_s: REQUEST_SECONDS.to_vec(),
            models: self.models.keys().map(|model| (model.clone(), Summary::default())).collect(),
            left_out: self.left_out,
        }
    }

    /// A model in short.
    #[must_use]
    pub fn summary(&self, now_unix_ms: u64, model: &str) -> Summary {
        let now = slot_of(now_unix_ms);
        let (recent_from, newest_point) = (now.saturating_sub(RECENT_SLOTS), now / TREND_SLOTS);
        let points = (SLOTS_MAX / TREND_SLOTS) as usize;
        let mut summary = Summary { recent: Counts::default(), trend: vec![[0; 2]; points] };
        for slot in self.models.get(model).into_iter().flatten() {
            if slot.number >= recent_from {
                summary.recent.add(&slot.counts());
            }
            let back = newest_point.saturating_sub(slot.number / TREND_SLOTS) as usize;
            if let Some(point) = summary.trend.iter_mut().rev().nth(back) {
                let [all, bad] = slot.trend();
                *point = [point[0] + all, point[1] + bad];
            }
        }
        summary
    }

    /// A copy of what is known of a model, which is made quickly.
    #[must_use]
    pub fn of_model(&self, model: &str) -> ModelHistory {
        let slots = self.models.get(model).cloned().unwrap_or_default();
        ModelHistory { began_unix_ms: self.began_unix_ms, slots }
    }

    /// The present slot of a model; none if there are too many models.
    fn slot(&mut self, now: u64, model: &str) -> Option<&mut Slot> {
        if !self.models.contains_key(model) {
            if self.models.len() >= MODELS_MAX && self.looked < now {
                self.looked = now;
                self.models.retain(|_, slots| slots.back().is_some_and(|last| last.number + SLOTS_MAX > now));
            }
            if self.models.len() >= MODELS_MAX {
                self.left_out += 1;
                return None;
            }
            self.models.insert(model.to_owned(), VecDeque::new());
        }
        let slots = self.models.get_mut(model)?;
        // A request that waited for its turn to be counted may be of the slot before.
        if slots.back().is_none_or(|last| last.number < now) {
            while slots.front().is_some_and(|first| first.number + SLOTS_MAX <= now) {
                slots.pop_front();
            }
            for old in slots.iter_mut().filter(|slot| slot.number + EXAMPLE_SLOTS <= now && slot.has_examples()) {
                let old = Arc::make_mut(old);
                (old.slowest, old.unserved) = (Vec::new(), Vec::new());
            }
            slots.push_back(Arc::new(Slot::new(now)));
        }
        slots.back_mut().map(Arc::make_mut)
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::{BootId, FrontendId};

    use super::*;

    const NOON_MS: u64 = 1_700_000_000_000;

    fn end(outcome: Outcome, elapsed_ms: u64, sequence: u64) -> RequestEnd {
        let request = Some(RequestId { frontend: FrontendId::new(1), boot: BootId::new(10), sequence });
        let ran = matches!(outcome, Outcome::InTime | Outcome::Late).then_some((4, Nanos::from_millis(5)));
        RequestEnd { request, outcome, items: 2, elapsed: Duration::from_millis(elapsed_ms), ran }
    }

    #[test]
    fn a_slot_has_what_became_of_its_requests() {
        let mut history = History::new(NOON_MS);
        for sequence in 0..98 {
            history.ended(NOON_MS + sequence, "m", &end(Outcome::InTime, 15, sequence));
        }
        history.ended(NOON_MS, "m", &end(Outcome::Late, 400, 98));
        history.ended(NOON_MS, "m", &end(Outcome::Dropped(DropReason::QueueFull), 25, 99));
        history.refused(NOON_MS, "m", "quota");
        let series = history.of_model("m").series(NOON_MS + 1);
        let (&at, counts) = series.slots.first_key_value().unwrap();
        assert_eq!((at, series.slots.len()), (NOON_MS / 1000, 1));
        assert_eq!((counts.in_time, counts.late, counts.dropped, counts.refused), (98, 1, 1, 1));
        assert_eq!((counts.ended(), counts.bad(), counts.mean_batch()), (100, 2, Some(4.0)));
        assert_eq!(counts.reasons, [("dropped queue_full".into(), 1), ("refused quota".into(), 1)].into());
        // 98 × 10 ms, 395 ms, 25 ms.
        assert!((counts.waited_s - 1.4).abs() < 1e-3, "{}", counts.waited_s);
        assert!(counts.quantile_ms(0.5).unwrap() <= 15.0 && counts.quantile_ms(0.995).unwrap() > 300.0);
        assert_eq!((series.slowest[0].request.as_str(), series.slowest.len()), ("f1/a/98", EXAMPLES_PER_SLOT));
        assert_eq!((series.unserved[0].reason.as_str(), series.unserved.len()), ("queue_full", 1));
        assert_eq!(history.of_model("other").series(NOON_MS).slots.len(), 0);
    }

    #[test]
    fn an_hour_is_remembered_and_examples_for_ten_minutes() {
        let mut history = History::new(NOON_MS);
        let later = |slots: u64| NOON_MS + slots * SLOT_S * 1000;
        for slot in 0..2 * SLOTS_MAX {
            history.ended(later(slot), "m", &end(Outcome::InTime, 10 + slot % 7, slot));
        }
        let last = later(2 * SLOTS_MAX - 1);
        let series = history.of_model("m").series(last);
        assert_eq!(series.slots.len() as u64, SLOTS_MAX);
        assert_eq!(history.models["m"].len() as u64, SLOTS_MAX);
        let oldest = series.slowest.iter().map(|example| example.at_unix_ms).min().unwrap();
        assert!(oldest > last - EXAMPLE_SLOTS * SLOT_S * 1000 && series.slowest.len() == EXAMPLES_SHOWN_MAX);
        assert!(series.slowest.is_sorted_by(|one, other| one.elapsed_ms >= other.elapsed_ms));
        assert_eq!(history.models["m"].iter().filter(|slot| !slot.slowest.is_empty()).count() as u64, EXAMPLE_SLOTS);

        // Nothing came for an hour.
        let idle = later(3 * SLOTS_MAX);
        assert!(history.of_model("m").series(idle).slots.is_empty());
        assert_eq!(history.overview(idle).models["m"].recent, Counts::default());
    }

    #[test]
    fn an_overview_has_the_last_minute_and_the_trend_of_an_hour() {
        let mut history = History::new(NOON_MS - 3_600_000);
        history.ended(NOON_MS - 120_000, "m", &end(Outcome::Failed(FailReason::NoGpu), 9, 1));
        history.ended(NOON_MS - 30_000, "m", &end(Outcome::InTime, 9, 2));
        history.ended(NOON_MS, "m", &end(Outcome::InTime, 9, 3));
        let overview = history.overview(NOON_MS + 4_000);
        let summary = &overview.models["m"];
        assert_eq!((summary.recent.in_time, summary.recent.failed), (2, 0));
        assert_eq!(overview.over_s, 64.0);
        assert_eq!(summary.trend.len() as u64, SLOTS_MAX / TREND_SLOTS);
        let sum = summary.trend.iter().fold([0, 0], |sum, point| [sum[0] + point[0], sum[1] + point[1]]);
        assert_eq!(sum, [3, 1]);
        // A process that has just begun divides by the time that it has been there.
        assert_eq!(History::new(NOON_MS).overview(NOON_MS + 4_000).over_s, 4.0);
    }

    #[test]
    fn what_several_processes_counted_is_added_except_by_other_bounds() {
        let mut one = History::new(NOON_MS);
        one.ended(NOON_MS, "m", &end(Outcome::InTime, 10, 1));
        one.refused(NOON_MS, "m", "quota");
        let mut sum = Series::default();
        let mut strange = one.of_model("m").series(NOON_MS);
        strange.bounds_s = vec![1.0];
        for series in [one.of_model("m").series(NOON_MS), strange] {
            sum.add(series);
        }
        let counts = &sum.slots[&(NOON_MS / 1000)];
        assert_eq!((counts.in_time, counts.refused, counts.latency.iter().sum::<u64>()), (2, 2, 1));
        assert_eq!(sum.slowest.len(), 2);

        // One whose clock is a slot ahead: its requests are in the slot after.
        let mut ahead = History::new(NOON_MS);
        ahead.ended(NOON_MS + SLOT_S * 1000, "m", &end(Outcome::Late, 10, 2));
        sum.add(ahead.of_model("m").series(NOON_MS + SLOT_S * 1000));
        let late: Vec<_> = sum.slots.iter().map(|(at, counts)| (at - NOON_MS / 1000, counts.late)).collect();
        assert_eq!(late, [(0, 0), (SLOT_S, 1)]);

        let mut all = Overview::default();
        all.add(one.overview(NOON_MS + 2_000));
        all.add(one.overview(NOON_MS + 5_000));
        assert_eq!((all.over_s, all.began_unix_ms, all.models["m"].recent.in_time), (5.0, NOON_MS, 2));
        assert_eq!(all.models["m"].trend.last(), Some(&[4, 2]));
        // It travels as JSON, and what another release does not say is nothing.
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Overview>(&text).unwrap(), all);
        assert_eq!(serde_json::from_str::<Series>("{}").unwrap(), Series::default());
    }

    #[test]
    fn models_are_bounded_and_one_without_requests_for_an_hour_makes_room() {
        let mut history = History::new(NOON_MS);
        for model in 0..=MODELS_MAX {
            history.refused(NOON_MS, &format!("m{model}"), "quota");
        }
        let overview = history.overview(NOON_MS);
        assert_eq!((overview.models.len(), overview.left_out), (MODELS_MAX, 1));
        history.refused(NOON_MS + 3_600_000, "late", "quota");
        assert!(history.overview(NOON_MS + 3_600_000).models.contains_key("late"));
    }
}
