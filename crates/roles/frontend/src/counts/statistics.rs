//! What each model's requests cost so far, and their metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use symphony_telemetry::Registry;
use symphony_telemetry::buckets::{BATCH_ITEMS, REQUEST_SECONDS};
use symphony_telemetry::history::{History, RequestEnd};
use symphony_types::{DropReason, FailReason, Nanos, Outcome, VersionedName};

use crate::metrics;
use crate::oip::{InferError, ModelStatistics, Span};

/// How long the counts of a model are shown after it was unloaded: so that the last of them are scraped, and a model
/// that is loaded again soon goes on counting.
const KEPT_AFTER_UNLOAD: Duration = Duration::from_secs(300);
/// A clock that goes back by more than this was set, and what was counted before is forgotten; after smaller steps
/// requests are counted at the time before them.
const STEP_BACK_MAX_MS: u64 = 60_000;

/// Labels of a request's end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    model: String,
    outcome: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    model: String,
    reason: &'static str,
    fault: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: String,
}

/// With its metrics at hand: finding them by their labels costs more than counting.
#[derive(Debug)]
struct ModelCounts {
    statistics: ModelStatistics,
    /// Batches run, as the sum of each answer's share of its batch.
    executions: f64,
    by_batch: BTreeMap<u32, (f64, Span)>,
    /// Requests by the labels of their outcome and its reason.
    ended: BTreeMap<(&'static str, &'static str), Counter>,
    /// Requests that were not accepted, by reason and whose doing it is.
    refused: BTreeMap<(&'static str, &'static str), Counter>,
    durations: Histogram,
    /// The same once more by bucket, which can be read.
    by_duration: [u64; REQUEST_SECONDS.len() + 1],
    batches: Histogram,
    /// When the model was first found unloaded.
    unloaded: Option<Instant>,
}

/// The last hour by the wall clock, as its slots are those of other frontends; but one that never goes back.
#[derive(Debug)]
struct LastHour(Mutex<Hour>);

#[derive(Debug)]
struct Hour {
    now_unix_ms: u64,
    history: History,
}

impl Hour {
    const fn begin(now_unix_ms: u64) -> Self {
        Self { now_unix_ms, history: History::new(now_unix_ms) }
    }

    /// Sets the time of the clock.
    fn at(&mut self, unix_ms: u64) {
        // Counts by a wrong clock have wrong times, and would take in all later ones until those times have passed.
        if unix_ms.saturating_add(STEP_BACK_MAX_MS) < self.now_unix_ms {
            *self = Self::begin(unix_ms);
        }
        self.now_unix_ms = self.now_unix_ms.max(unix_ms);
    }
}

impl LastHour {
    fn begin() -> Self {
        Self(Mutex::new(Hour::begin(unix_ms())))
    }

    fn with<T>(&self, then: impl FnOnce(u64, &mut History) -> T) -> T {
        let unix_ms = unix_ms();
        let mut hour = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hour.at(unix_ms);
        let now = hour.now_unix_ms;
        then(now, &mut hour.history)
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

type HistogramFamily = Family<ModelLabels, Histogram, fn() -> Histogram>;

/// Counters of all models of a frontend.
#[derive(Debug)]
pub(crate) struct Statistics {
    models: Mutex<BTreeMap<String, ModelCounts>>,
    last_hour: LastHour,
    ended: Family<EndLabels, Counter>,
    refused: Family<RefusalLabels, Counter>,
    durations: HistogramFamily,
    batches: HistogramFamily,
}

fn duration_buckets() -> Histogram {
    symphony_telemetry::native_histogram(&REQUEST_SECONDS)
}

fn batch_buckets() -> Histogram {
    symphony_telemetry::native_histogram(&BATCH_ITEMS.map(|items| items as f64))
}

impl Statistics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let durations = HistogramFamily::new_with_constructor(duration_buckets);
        let batches = HistogramFamily::new_with_constructor(batch_buckets);
        Self {
            models: Mutex::default(),
            last_hour: LastHour::begin(),
            ended: registry.register(&metrics::REQUESTS, Family::default()),
            refused: registry.register(&metrics::REFUSED, Family::default()),
            durations: registry.register(&metrics::REQUEST_DURATION, durations),
            batches: registry.register(&metrics::REQUEST_BATCH, batches),
        }
    }

    pub(crate) fn observe(&self, model: &str, observed: RequestEnd) {
        self.last_hour.with(|now, history| history.ended(now, model, &observed));
        let reason = match observed.outcome {
            Outcome::Dropped(reason) => DropReason::label(reason),
            Outcome::Failed(reason) => FailReason::label(reason),
            _ => "",
        };
        let outcome = observed.outcome.label();
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        if !models.contains_key(model) {
            models.insert(model.to_owned(), self.counts_of(model));
        }
        let Some(counts) = models.get_mut(model) else { return };
        let counter = || self.ended.get_or_create_owned(&EndLabels { model: model.to_owned(), outcome, reason });
        counts.ended.entry((outcome, reason)).or_insert_with(counter).inc();
        let elapsed_s = observed.elapsed.as_secs_f64();
        counts.durations.observe(elapsed_s);
        counts.by_duration[REQUEST_SECONDS.partition_point(|&bound| bound < elapsed_s)] += 1;
        if let Some((batch, _)) = observed.ran {
            counts.batches.observe(f64::from(batch));
        }
        counts.count_run(&observed);
    }

    /// Counts a stage request of a pipeline among what its model has run, as Triton does with the models of an
    /// ensemble. The request that it is part of is counted for the pipeline.
    pub(crate) fn observe_stage(&self, model: &str, observed: RequestEnd) {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        if !models.contains_key(model) {
            models.insert(model.to_owned(), self.counts_of(model));
        }
        if let Some(counts) = models.get_mut(model) {
            counts.count_run(&observed);
        }
    }

    /// Counts a request that was refused before it was accepted.
    pub(crate) fn refused(&self, model: &str, error: &InferError) {
        let (reason, fault) = (error.error_status().reason, error.fault().label());
        self.last_hour.with(|now, history| history.refused(now, model, reason));
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        if !models.contains_key(model) {
            models.insert(model.to_owned(), self.counts_of(model));
        }
        let Some(counts) = models.get_mut(model) else { return };
        let counter = || self.refused.get_or_create_owned(&RefusalLabels { model: model.to_owned(), reason, fault });
        counts.refused.entry((reason, fault)).or_insert_with(counter).inc();
    }

    /// Counts a call that was refused before it was known which model it is for, or that it is one.
    pub(crate) fn refused_unread(&self, error: &InferError) {
        let (reason, fault) = (error.error_status().reason, error.fault().label());
        self.last_hour.with(|now, history| history.refused(now, "", reason));
        self.refused.get_or_create(&RefusalLabels { model: String::new(), reason, fault }).inc();
    }

    #[cfg(test)]
    pub(crate) fn refusals(&self, model: &str) -> BTreeMap<&'static str, u64> {
        let models = self.models.lock().unwrap();
        models.get(model).map_or_else(BTreeMap::new, |counts| {
            counts.refused.iter().map(|(&(reason, _), counter)| (reason, counter.get())).collect()
        })
    }

    fn counts_of(&self, model: &str) -> ModelCounts {
        let labels = ModelLabels { model: model.to_owned() };
        ModelCounts {
            statistics: ModelStatistics::default(),
            executions: 0.0,
            by_batch: BTreeMap::new(),
            ended: BTreeMap::new(),
            refused: BTreeMap::new(),
            durations: self.durations.get_or_create_owned(&labels),
            by_duration: [0; REQUEST_SECONDS.len() + 1],
            batches: self.batches.get_or_create_owned(&labels),
            unloaded: None,
        }
    }

    /// Drops the counts and the metrics of models that have been unloaded for [`KEPT_AFTER_UNLOAD`].
    pub(crate) fn forget_unloaded(&self, now: Instant, is_loaded: impl Fn(&str) -> bool) {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        models.retain(|model, counts| {
            if is_loaded(model) {
                counts.unloaded = None;
                return true;
            }
            let since = *counts.unloaded.get_or_insert(now);
            if now.saturating_duration_since(since) < KEPT_AFTER_UNLOAD {
                return true;
            }
            for &(outcome, reason) in counts.ended.keys() {
                self.ended.remove(&EndLabels { model: model.clone(), outcome, reason });
            }
            for &(reason, fault) in counts.refused.keys() {
                self.refused.remove(&RefusalLabels { model: model.clone(), reason, fault });
            }
            let labels = ModelLabels { model: model.clone() };
            self.durations.remove(&labels);
            self.batches.remove(&labels);
            false
        });
    }

    /// All models in short, or the last hour of one, as `/api/history` shows it.
    pub(crate) fn history_json(&self, model: Option<&str>) -> serde_json::Value {
        let json = match model {
            // Requests that end meanwhile wait for one model at most.
            None => {
                let (now, mut overview) = self.last_hour.with(|now, history| (now, history.heading(now)));
                for (model, summary) in &mut overview.models {
                    *summary = self.last_hour.with(|_, history| history.summary(now, model));
                }
                serde_json::to_value(overview)
            }
            Some(model) => {
                let (now, model) = self.last_hour.with(|now, history| (now, history.of_model(model)));
                serde_json::to_value(model.series(now))
            }
        };
        json.unwrap_or_default()
    }

    pub(crate) fn counts_json(&self, model: &str) -> serde_json::Value {
        let models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(counts) = models.get(model) else { return serde_json::json!({}) };
        // The reader divides the differences of two pages: the average size of the batches that ran in between.
        let items = counts.statistics.inference_count;
        let mut outcomes = BTreeMap::from([("received", 0)]);
        for (&(outcome, _), counter) in &counts.ended {
            for name in [outcome, "received"] {
                *outcomes.entry(name).or_default() += counter.get();
            }
        }
        let mut shown = serde_json::json!(outcomes);
        shown["executed_items"] = serde_json::json!(items);
        shown["executed_batches"] = serde_json::json!(counts.executions);
        shown["refused"] = serde_json::json!(counts.refused.values().map(Counter::get).sum::<u64>());
        // By the bounds of the page, and beyond the last one.
        shown["latency_counts"] = serde_json::json!(counts.by_duration.as_slice());
        shown
    }

    /// Of all models, of all versions of one, or of one of them.
    pub(crate) fn of(&self, wanted: Option<(&str, Option<u64>)>) -> Vec<ModelStatistics> {
        let models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        models
            .iter()
            .map(|(loaded_as, counts)| (VersionedName::parse(loaded_as), counts))
            .filter(|(model, _)| {
                let is_wanted = |(name, version): (&str, Option<u64>)| {
                    model.name == name && version.is_none_or(|v| v == model.version)
                };
                wanted.is_none_or(is_wanted)
            })
            .map(|(model, counts)| {
                let batches = counts.by_batch.iter().map(|(&batch, &(share, span))| {
                    // The span was counted once per request; the batch ran `share` times.
                    let runs = share.round() as u64;
                    let mean = span.total.get() / span.count.max(1);
                    (batch, Span { count: runs, total: Nanos::new(mean).saturating_mul(runs) })
                });
                ModelStatistics {
                    model: model.name.to_owned(),
                    version: model.version,
                    execution_count: counts.executions.round() as u64,
                    batches: batches.collect(),
                    ..counts.statistics.clone()
                }
            })
            .collect()
    }
}

impl ModelCounts {
    /// Adds a request to the protocol's statistics.
    fn count_run(&mut self, observed: &RequestEnd) {
        let elapsed = Nanos::from(observed.elapsed);
        let Some((batch, execution)) = observed.ran else {
            add(&mut self.statistics.fail, elapsed);
            return;
        };
        let share = f64::from(observed.items) / f64::from(batch.max(1));
        self.executions += share;
        self.statistics.inference_count += u64::from(observed.items);
        self.statistics.last_inference_ms = unix_ms();
        add(&mut self.statistics.success, elapsed);
        add(&mut self.statistics.compute, execution);
        add(&mut self.statistics.queue, elapsed - execution);
        let by_batch = self.by_batch.entry(batch).or_default();
        by_batch.0 += share;
        add(&mut by_batch.1, execution);
    }
}

fn add(span: &mut Span, time: Nanos) {
    span.count += 1;
    span.total += time;
}

#[cfg(test)]
mod tests {
    use symphony_telemetry::history::{Overview, Series};
    use symphony_types::{BootId, FrontendId, RequestId};

    use super::*;

    const BUSY: InferError = InferError::Busy { in_flight_max: 1 };

    fn ran() -> RequestEnd {
        let ran = Some((1, Nanos::from_millis(1)));
        RequestEnd { request: None, outcome: Outcome::InTime, items: 1, elapsed: Duration::from_millis(2), ran }
    }

    #[test]
    fn what_was_counted_of_a_model_goes_a_while_after_it() {
        let registry = Registry::new("frontend");
        let statistics = Statistics::new(&registry);
        let bare = registry.encode().lines().count();
        for version in 1..=50 {
            statistics.observe(&format!("m@{version}"), ran());
            statistics.refused(&format!("m@{version}"), &BUSY);
        }
        let series = || registry.encode().lines().filter(|line| line.contains("model=\"m@")).count();
        let all = series();
        assert!(all >= 50 * 45, "{all}");

        let (start, is_loaded) = (Instant::now(), |model: &str| model == "m@50");
        statistics.forget_unloaded(start, is_loaded);
        statistics.forget_unloaded(start + KEPT_AFTER_UNLOAD / 2, |model| is_loaded(model) || model == "m@49");
        assert_eq!(series(), all, "they may come back, and were perhaps not scraped yet");
        statistics.forget_unloaded(start + KEPT_AFTER_UNLOAD, is_loaded);
        assert_eq!(series(), all / 50 * 2, "the one that is loaded, and the one that was until a moment ago");
        statistics.forget_unloaded(start + KEPT_AFTER_UNLOAD * 2, |_| false);
        statistics.forget_unloaded(start + KEPT_AFTER_UNLOAD * 3, |_| false);
        assert_eq!((registry.encode().lines().count(), statistics.of(None).len()), (bare, 0));

        statistics.observe("m@1", ran());
        statistics.refused("m@1", &BUSY);
        assert_eq!(series(), all / 50, "it counts from the start");
    }

    #[test]
    fn each_answer_is_counted_once_in_every_span() {
        let statistics = Statistics::new(&Registry::new("frontend"));
        let in_two = RequestEnd { ran: Some((2, Nanos::from_millis(1))), ..ran() };
        for observed in [ran(), in_two, in_two, RequestEnd { ran: None, outcome: Outcome::Cancelled, ..ran() }] {
            statistics.observe("m", observed);
        }
        assert_eq!(statistics.counts_json("m")["received"], 4);
        let of = statistics.of(None).remove(0);
        assert_eq!((of.inference_count, of.execution_count, of.fail.count), (3, 2, 1));
        assert_eq!([of.success.count, of.queue.count, of.compute.count], [3; 3]);
        assert_eq!((of.success.total, of.queue.total + of.compute.total), (Nanos::from_millis(6), of.success.total));
        let batches: Vec<_> = of.batches.iter().map(|&(size, span)| (size, span.count, span.total)).collect();
        assert_eq!(batches, [(1, 1, Nanos::from_millis(1)), (2, 1, Nanos::from_millis(1))]);
    }

    #[test]
    fn a_stage_request_is_among_what_its_model_has_run_and_no_request() {
        let statistics = Statistics::new(&Registry::new("frontend"));
        statistics.observe_stage("m", ran());
        let of = statistics.of(None).remove(0);
        assert_eq!((of.inference_count, of.success.count), (1, 1));
        assert_eq!(statistics.counts_json("m")["received"], 0);
        assert!(statistics.history_json(None)["models"].as_object().is_none_or(|models| !models.contains_key("m")));
    }

    #[test]
    fn the_last_hour_follows_a_clock_that_is_set() {
        let noon = 1_700_000_000_000;
        let mut hour = Hour::begin(noon);
        hour.history.refused(noon, "m", "quota");
        hour.at(noon - 1_000);
        assert_eq!(hour.now_unix_ms, noon, "a small step back is waited out");
        hour.at(noon + 7_200_000);
        assert_eq!((hour.now_unix_ms, hour.history.overview(noon).models.len()), (noon + 7_200_000, 1));
        hour.at(noon);
        assert_eq!((hour.now_unix_ms, hour.history.overview(noon).models.len()), (noon, 0), "it was set");
    }

    #[test]
    fn the_last_hour_has_what_was_counted() {
        let statistics = Statistics::new(&Registry::new("frontend"));
        let request = RequestId { frontend: FrontendId::new(2), boot: BootId::new(9), sequence: 7 };
        statistics.observe("m", RequestEnd { request: Some(request), outcome: Outcome::Late, ..ran() });
        statistics.refused("m", &BUSY);
        statistics.refused_unread(&BUSY);
        let overview: Overview = serde_json::from_value(statistics.history_json(None)).unwrap();
        let recent = &overview.models["m"].recent;
        assert_eq!((recent.late, recent.refused, overview.models[""].recent.refused), (1, 1, 1));
        let series: Series = serde_json::from_value(statistics.history_json(Some("m"))).unwrap();
        assert_eq!((series.slowest[0].request.as_str(), series.slowest[0].outcome.as_str()), ("f2/9/7", "late"));
        let nobody: Series = serde_json::from_value(statistics.history_json(Some("nobody"))).unwrap();
        assert!(nobody.slots.is_empty());
    }
}
