//! What is counted of pipelines: how their stage requests end, how far results fan out, and how long they take to the
//! next stage. Metrics show it, and the leader of the control group splits budgets by it. Roll-outs judge versions by
//! how requests end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use symphony_protocol::view::PipelineCounts;
use symphony_telemetry::Registry;
use symphony_telemetry::buckets::{REQUEST_SECONDS, STEP_SECONDS};
use symphony_types::{Nanos, Outcome};

use crate::clusters::live_pipeline::LivePipeline;
use crate::counts::hop::Hop;
use crate::metrics;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct StageEndLabels {
    pipeline: String,
    stage: String,
    outcome: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct StageLabels {
    pipeline: String,
    stage: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct EdgeLabels {
    pipeline: String,
    from: String,
    to: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PipelineLabels {
    pipeline: String,
}

/// What was counted of one version of a pipeline.
#[derive(Debug)]
struct Counted {
    /// The pipeline's name, without a version.
    name: String,
    /// Since it was first asked, as `begun` says.
    counts: PipelineCounts,
    begun: Instant,
    // The series that it counts in, so that they can go with it. Other versions may count in the same.
    ends: BTreeSet<StageEndLabels>,
    stages: BTreeSet<StageLabels>,
    edges: BTreeSet<EdgeLabels>,
}

type HistogramFamily<L> = Family<L, Histogram, fn() -> Histogram>;

/// Counters of all pipelines of a frontend.
#[derive(Debug)]
pub(crate) struct PipelineCounters {
    ends: Family<StageEndLabels, Counter>,
    durations: HistogramFamily<StageLabels>,
    hops: HistogramFamily<PipelineLabels>,
    results: Family<EdgeLabels, Counter>,
    led_to: Family<EdgeLabels, Counter>,
    /// By the names of versions.
    pipelines: Mutex<BTreeMap<String, Counted>>,
}

fn stage_buckets() -> Histogram {
    symphony_telemetry::native_histogram(&REQUEST_SECONDS)
}

fn hop_buckets() -> Histogram {
    symphony_telemetry::native_histogram(&STEP_SECONDS)
}

impl PipelineCounters {
    pub(crate) fn new(registry: &Registry) -> Self {
        let durations = HistogramFamily::new_with_constructor(stage_buckets as fn() -> Histogram);
        let hops = HistogramFamily::new_with_constructor(hop_buckets as fn() -> Histogram);
        Self {
            ends: registry.register(&metrics::STAGE_REQUESTS, Family::default()),
            durations: registry.register(&metrics::STAGE_DURATION, durations),
            hops: registry.register(&metrics::PIPELINE_HOP, hops),
            results: registry.register(&metrics::EDGE_RESULTS, Family::default()),
            led_to: registry.register(&metrics::EDGE_REQUESTS, Family::default()),
            pipelines: Mutex::default(),
        }
    }

    fn with(&self, pipeline: &LivePipeline, then: impl FnOnce(&mut Counted)) {
        let (name, version) = (&pipeline.declaration.name, pipeline.declaration.version);
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        let none = || PipelineCounts {
            version,
            begun_unix_ns: unix_ns(),
            edges: vec![(0, 0); pipeline.wiring.edges.len()],
            ..PipelineCounts::default()
        };
        let begin = || Counted {
            name: name.clone(),
            counts: none(),
            begun: Instant::now(),
            ends: BTreeSet::new(),
            stages: BTreeSet::new(),
            edges: BTreeSet::new(),
        };
        let counted = pipelines.entry(pipeline.info.loaded_as.clone()).or_insert_with(begin);
        // It was loaded anew, with other edges.
        if counted.counts.edges.len() != pipeline.wiring.edges.len() {
            (counted.counts, counted.begun) = (none(), Instant::now());
        }
        then(counted);
    }

    /// The source was asked for this many items.
    pub(crate) fn count_items(&self, pipeline: &LivePipeline, items: u64) {
        self.with(pipeline, |counted| counted.counts.items += items);
    }

    /// A request was refused since the version was not ready, or would have taken longer than there was time.
    pub(crate) fn request_refused(&self, pipeline: &LivePipeline) {
        self.with(pipeline, |counted| {
            counted.counts.ended += 1;
            counted.counts.bad += 1;
        });
    }

    /// A request that was taken in has ended. One whose client has gone says nothing of the version.
    pub(crate) fn request_ended(&self, loaded_as: &str, outcome: Outcome) {
        let is_bad = match outcome {
            Outcome::InTime => false,
            Outcome::Late | Outcome::Dropped(_) | Outcome::Failed(_) => true,
            Outcome::Cancelled => return,
        };
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        // Every request has asked the source.
        if let Some(counted) = pipelines.get_mut(loaded_as) {
            counted.counts.ended += 1;
            counted.counts.bad += u64::from(is_bad);
        }
    }

    /// A result led to this many stage requests along an edge.
    pub(crate) fn led_on(&self, pipeline: &LivePipeline, edge: usize, rows: u64) {
        let wired = &pipeline.wiring.edges[edge];
        let labels = EdgeLabels {
            pipeline: pipeline.declaration.name.clone(),
            from: wired.spec.from.clone(),
            to: wired.spec.to.clone(),
        };
        self.results.get_or_create(&labels).inc();
        self.led_to.get_or_create(&labels).inc_by(rows);
        self.with(pipeline, |counted| {
            if let Some((results, led_to)) = counted.counts.edges.get_mut(edge) {
                *results += 1;
                *led_to += rows;
            }
            counted.edges.insert(labels);
        });
    }

    /// A request of the next stage has been made. Budgets are split by the time until now; the histogram also has the
    /// time until it is announced to a leader, which is long where there is none.
    pub(crate) fn hop(&self, pipeline: &LivePipeline, result_at: Instant, now: Instant) -> Hop {
        let took = now.saturating_duration_since(result_at);
        self.with(pipeline, |counted| {
            counted.counts.hops += Nanos::from(took);
            counted.counts.hop_count += 1;
        });
        let labels = PipelineLabels { pipeline: pipeline.declaration.name.clone() };
        Hop::since(result_at, self.hops.get_or_create_owned(&labels))
    }

    /// A stage request has ended; `took` if it was answered.
    pub(crate) fn stage_ended(
        &self,
        pipeline: &LivePipeline,
        stage: usize,
        (outcome, reason): (&'static str, &'static str),
        took: Option<Duration>,
    ) {
        let (pipeline_name, stage) = (pipeline.declaration.name.clone(), pipeline.stage_name(stage).to_owned());
        let of_stage = StageLabels { pipeline: pipeline_name.clone(), stage: stage.clone() };
        if let Some(took) = took {
            self.durations.get_or_create(&of_stage).observe(took.as_secs_f64());
        }
        let end = StageEndLabels { pipeline: pipeline_name, stage, outcome, reason };
        self.ends.get_or_create(&end).inc();
        self.with(pipeline, |counted| {
            counted.ends.insert(end);
            counted.stages.insert(of_stage);
        });
    }

    /// The counts of these versions of pipelines since each was first asked, by their names.
    pub(crate) fn counted(&self, now: Instant, is_wanted: impl Fn(&str) -> bool) -> BTreeMap<String, PipelineCounts> {
        let pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        let until_now = |(loaded_as, counted): (&String, &Counted)| {
            let within = Nanos::from(now.saturating_duration_since(counted.begun));
            (loaded_as.clone(), PipelineCounts { within, ..counted.counts.clone() })
        };
        pipelines.iter().filter(|(loaded_as, _)| is_wanted(loaded_as)).map(until_now).collect()
    }

    /// Drops what was counted of versions that are gone, and the series that no other version counts in.
    pub(crate) fn forget_unloaded(&self, is_loaded: impl Fn(&str) -> bool) {
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> = pipelines.keys().filter(|loaded_as| !is_loaded(loaded_as)).cloned().collect();
        let gone: Vec<_> = gone.iter().filter_map(|loaded_as| pipelines.remove(loaded_as)).collect();
        let left = || pipelines.values();
        for counted in gone {
            for labels in counted.ends.iter().filter(|labels| !left().any(|other| other.ends.contains(labels))) {
                self.ends.remove(labels);
            }
            for labels in counted.stages.iter().filter(|labels| !left().any(|other| other.stages.contains(labels))) {
                self.durations.remove(labels);
            }
            for labels in counted.edges.iter().filter(|labels| !left().any(|other| other.edges.contains(labels))) {
                self.results.remove(labels);
                self.led_to.remove(labels);
            }
            if !left().any(|other| other.name == counted.name) {
                self.hops.remove(&PipelineLabels { pipeline: counted.name });
            }
        }
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
