//! Shows the counters of the led sub-clusters as metrics.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use symphony_telemetry::{DurationCounts, Kind, MetricName, Registry, Unit};

use crate::runtime::{LeadStatus, Runtime};
use crate::workers::load::ModelBatches;
use crate::workers::worker_metrics::WorkerDurations;

const fn counter(name: &'static str, help: &'static str) -> MetricName {
    MetricName { name, help, kind: Kind::Counter, unit: Unit::Count, labels: &["subcluster"] }
}

const fn seconds(name: &'static str, help: &'static str) -> MetricName {
    MetricName { name, help, kind: Kind::Counter, unit: Unit::Seconds, labels: &["subcluster"] }
}

const fn durations(name: &'static str, help: &'static str) -> MetricName {
    MetricName { name, help, kind: Kind::Histogram, unit: Unit::Seconds, labels: &["subcluster", "worker"] }
}

/// The pressure on a sub-cluster.
const PRESSURE: MetricName = MetricName {
    name: "symphony_dispatch_pressure_ratio",
    help: "Share of its requests that a model of value 1 gives up; models of value v give up 1/v of that. 0 without overload",
    kind: Kind::Gauge,
    unit: Unit::Ratio,
    labels: &["subcluster"],
};

/// Quarantined GPUs.
const QUARANTINED: MetricName = MetricName {
    name: "symphony_dispatch_gpus_quarantined",
    help: "GPUs that get no batches because they are slower than their peers",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &["subcluster"],
};

/// How long inputs take to arrive.
const PAYLOAD_DELAY: MetricName = MetricName {
    name: "symphony_dispatch_payload_delay_seconds",
    help: "How long a batch's inputs take to come to the slowest backend, as measured: whatever their bytes (fixed), and for each MiB (per_mib)",
    kind: Kind::Gauge,
    unit: Unit::Seconds,
    labels: &["subcluster", "part"],
};

/// Threads that hung.
const HANGS: MetricName = MetricName {
    name: "symphony_dispatch_threads_hung_total",
    help: "Decision threads that hung, each of which has cost every lead on it",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &[],
};

/// Threads that are not bound to a core although they should be.
const NOT_PINNED: MetricName = MetricName {
    name: "symphony_dispatch_threads_not_pinned",
    help: "Decision threads that run and are not bound to a core although scheduler.pin_cores asks for it",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &[],
};

/// The decision thread of each lead.
const LEAD: MetricName = MetricName {
    name: "symphony_dispatch_lead_info",
    help: "The decision thread that ranks for a sub-cluster: those with the same one wait for each other",
    kind: Kind::Info,
    unit: Unit::None,
    labels: &["subcluster", "id", "thread"],
};

/// Queue depths.
const QUEUED: MetricName = MetricName {
    name: "symphony_dispatch_queued_requests",
    help: "Requests that wait for a batch now",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &["subcluster", "model"],
};

/// Batch sizes.
const BATCH_ITEMS: MetricName = MetricName {
    name: "symphony_dispatch_batch_items",
    help: "Items of a batch plan",
    kind: Kind::Histogram,
    unit: Unit::Count,
    labels: &["subcluster", "model"],
};

/// How long batches were deferred.
const WINDOW_USED: MetricName = MetricName {
    name: "symphony_dispatch_window_used_ratio",
    help: "Share of its window that a batch had used when it started: 0 at frontrun or before, 1 at latest",
    kind: Kind::Histogram,
    unit: Unit::Ratio,
    labels: &["subcluster", "model"],
};

/// Leads whose decisions panicked.
const PANICS: MetricName = MetricName {
    name: "symphony_dispatch_leads_panicked_total",
    help: "Turns that panicked, each of which ended its lead; above 0 is a bug",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &[],
};

/// Leads that ended by a fault of their policy.
const POLICY_FAULTS: MetricName = MetricName {
    name: "symphony_dispatch_policy_faults_total",
    help: "Leads that ended because the policy of the sub-cluster panicked, hung, or gave an order that breaks a rule",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &[],
};

/// How late timers fired.
const TIMER_LATE: MetricName = durations(
    "symphony_dispatch_timer_late_seconds",
    "By how much timers fired late, those left out that had passed already when they were armed",
);

/// How long turns took.
const TURN: MetricName = durations(
    "symphony_dispatch_turn_seconds",
    "Time a worker took for a turn with something to do, handing over what it decided included",
);

/// The error of predicted execution times.
const EXECUTION_ERROR: MetricName = MetricName {
    name: "symphony_dispatch_execution_error_ratio",
    help: "By how much the measured execution time of a plan was off the predicted one, as a share of it",
    kind: Kind::Histogram,
    unit: Unit::Ratio,
    labels: &["subcluster"],
};

/// The counters, in the order of [`Counters`](crate::workers::counters::Counters).
const COUNTERS: [MetricName; 25] = [
    counter("symphony_dispatch_requests_total", "Requests received, new and announced again"),
    counter("symphony_dispatch_redriven_requests_total", "Requests announced again after a take-over"),
    counter("symphony_dispatch_redriven_known_requests_total", "Of them, not queued because a backend had them"),
    counter("symphony_dispatch_plans_total", "Batch plans sent"),
    counter("symphony_dispatch_planned_requests_total", "Requests in batch plans"),
    counter("symphony_dispatch_offers_total", "Candidates that were ranked; newer ones replace older ones before that"),
    counter("symphony_dispatch_grants_total", "GPUs given to models"),
    counter("symphony_dispatch_grants_returned_total", "Grants that no batch could use"),
    counter("symphony_dispatch_dropped_requests_total", "Requests given up"),
    counter("symphony_dispatch_shed_requests_total", "Of them, those that were a model's part of an overload"),
    counter("symphony_dispatch_failed_requests_total", "Requests failed"),
    counter("symphony_dispatch_plans_refused_total", "Plans that a backend refused"),
    counter("symphony_dispatch_requeued_requests_total", "Requests queued again because their plan was lost"),
    counter("symphony_dispatch_timers_total", "Timers that fired"),
    counter("symphony_dispatch_timers_past_total", "Timers that had passed already when they were armed"),
    seconds("symphony_dispatch_start_late_seconds_total", "By how much plans started late, summed"),
    seconds("symphony_dispatch_predicted_seconds_total", "Predicted execution time of plans, summed"),
    seconds("symphony_dispatch_measured_seconds_total", "Measured execution time of plans, summed"),
    counter("symphony_dispatch_plans_done_total", "Plans whose end was reported"),
    counter("symphony_dispatch_unrecorded_total", "Decisions that cannot be explained: the recorder was being read"),
    counter("symphony_dispatch_unlearnt_total", "Ends of batches that nothing was learnt from: too many waited"),
    counter(
        "symphony_dispatch_quarantines_total",
        "GPUs set aside: slower than their peers, failing where these did not, or lost",
    ),
    counter("symphony_dispatch_profiles_corrected_total", "Profiles corrected by measured execution times"),
    counter("symphony_dispatch_tapes_cut_total", "Tapes that ended before their lead did, or never began"),
    counter("symphony_dispatch_violations_total", "Plans that violated S1 or S2; above 0 is a bug"),
];

/// Every metric of the dispatch runtime. All but the counts of panicked leads, hung threads and faults of policies
/// restart with each lead.
pub const METRIC_NAMES: [MetricName; COUNTERS.len() + 14] = {
    let mut names = [TIMER_LATE; COUNTERS.len() + 14];
    let mut index = 0;
    while index < COUNTERS.len() {
        names[index] = COUNTERS[index];
        index += 1;
    }
    names[COUNTERS.len() + 1] = TURN;
    names[COUNTERS.len() + 2] = PRESSURE;
    names[COUNTERS.len() + 3] = QUARANTINED;
    names[COUNTERS.len() + 4] = PAYLOAD_DELAY;
    names[COUNTERS.len() + 5] = PANICS;
    names[COUNTERS.len() + 6] = EXECUTION_ERROR;
    names[COUNTERS.len() + 7] = LEAD;
    names[COUNTERS.len() + 8] = HANGS;
    names[COUNTERS.len() + 9] = NOT_PINNED;
    names[COUNTERS.len() + 10] = QUEUED;
    names[COUNTERS.len() + 11] = BATCH_ITEMS;
    names[COUNTERS.len() + 12] = WINDOW_USED;
    names[COUNTERS.len() + 13] = POLICY_FAULTS;
    names
};

#[derive(Debug)]
struct LeadCollector(Arc<Runtime>);

/// Adds the runtime's metrics to a process's registry.
pub fn register_metrics(registry: &Registry, runtime: &Arc<Runtime>) {
    registry.collect(LeadCollector(Arc::clone(runtime)));
}

impl Collector for LeadCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        // A sub-cluster that was removed is led for a moment more; under another name it would be a second series.
        let mut status = self.0.status();
        status.retain(|lead| !lead.name.is_empty());
        for (index, name) in COUNTERS.iter().enumerate() {
            let mut descriptor = encoder.encode_descriptor(name.bare(), name.help, None, MetricType::Counter)?;
            for lead in &status {
                let value = lead.counters.get(index).map_or(0, |(_, value)| *value);
                let value = if name.unit == Unit::Seconds { value as f64 / 1e9 } else { value as f64 };
                let labels = [("subcluster", lead.name.clone())];
                ConstCounter::new(value).encode(descriptor.encode_family(&labels)?)?;
            }
        }
        let mut descriptor = encoder.encode_descriptor(LEAD.bare(), LEAD.help, None, MetricType::Info)?;
        for lead in &status {
            let id = lead.subcluster.to_string();
            let labels = [("subcluster", lead.name.clone()), ("id", id), ("thread", lead.thread.clone())];
            descriptor.encode_info(&labels)?;
        }
        let panics = encoder.encode_descriptor(PANICS.bare(), PANICS.help, None, MetricType::Counter)?;
        ConstCounter::new(self.0.threads.panics()).encode(panics)?;
        let hangs = encoder.encode_descriptor(HANGS.bare(), HANGS.help, None, MetricType::Counter)?;
        ConstCounter::new(self.0.threads.hangs()).encode(hangs)?;
        let faults = encoder.encode_descriptor(POLICY_FAULTS.bare(), POLICY_FAULTS.help, None, MetricType::Counter)?;
        ConstCounter::new(self.0.threads.policy_faults()).encode(faults)?;
        let not_pinned = encoder.encode_descriptor(NOT_PINNED.bare(), NOT_PINNED.help, None, MetricType::Gauge)?;
        ConstGauge::new(self.0.threads.not_pinned() as u64).encode(not_pinned)?;
        let mut descriptor = encoder.encode_descriptor(PRESSURE.bare(), PRESSURE.help, None, MetricType::Gauge)?;
        for lead in &status {
            let labels = [("subcluster", lead.name.clone())];
            ConstGauge::new(lead.pressure.share()).encode(descriptor.encode_family(&labels)?)?;
        }
        let mut descriptor =
            encoder.encode_descriptor(QUARANTINED.bare(), QUARANTINED.help, None, MetricType::Gauge)?;
        for lead in &status {
            let labels = [("subcluster", lead.name.clone())];
            ConstGauge::new(lead.quarantined as f64).encode(descriptor.encode_family(&labels)?)?;
        }
        let mut descriptor =
            encoder.encode_descriptor(PAYLOAD_DELAY.bare(), PAYLOAD_DELAY.help, None, MetricType::Gauge)?;
        for (lead, delay) in status.iter().filter_map(|lead| Some((lead, lead.payload_delay?))) {
            for (part, time) in [("fixed", delay.fixed), ("per_mib", delay.per_mib)] {
                let labels = [("subcluster", lead.name.clone()), ("part", part.to_owned())];
                ConstGauge::new(time.as_secs_f64()).encode(descriptor.encode_family(&labels)?)?;
            }
        }
        encode_models(&mut encoder, &QUEUED, &status, |model, encoder| ConstGauge::new(model.queued).encode(encoder))?;
        encode_models(&mut encoder, &BATCH_ITEMS, &status, |model, encoder| model.batch_items.encode(encoder))?;
        encode_models(&mut encoder, &WINDOW_USED, &status, |model, encoder| model.window_used.encode(encoder))?;
        let mut descriptor =
            encoder.encode_descriptor(EXECUTION_ERROR.bare(), EXECUTION_ERROR.help, None, MetricType::Histogram)?;
        for lead in &status {
            let labels = [("subcluster", lead.name.clone())];
            lead.execution_errors.encode(descriptor.encode_family(&labels)?)?;
        }
        encode_durations(&mut encoder, &TIMER_LATE, &status, |worker| worker.timers_late)?;
        encode_durations(&mut encoder, &TURN, &status, |worker| worker.turns)
    }
}

fn encode_models(
    encoder: &mut DescriptorEncoder<'_>,
    name: &MetricName,
    status: &[LeadStatus],
    encode: impl Fn(&ModelBatches, MetricEncoder<'_>) -> Result<(), std::fmt::Error>,
) -> Result<(), std::fmt::Error> {
    let metric_type = if name.kind == Kind::Histogram { MetricType::Histogram } else { MetricType::Gauge };
    let mut descriptor = encoder.encode_descriptor(name.bare(), name.help, None, metric_type)?;
    for lead in status {
        for (model, batches) in &lead.models {
            let labels = [("subcluster", lead.name.as_str()), ("model", model.as_str())];
            encode(batches, descriptor.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn encode_durations(
    encoder: &mut DescriptorEncoder<'_>,
    name: &MetricName,
    status: &[LeadStatus],
    which: impl Fn(&WorkerDurations) -> DurationCounts,
) -> Result<(), std::fmt::Error> {
    let mut descriptor = encoder.encode_descriptor(name.bare(), name.help, None, MetricType::Histogram)?;
    for lead in status {
        for worker in &lead.durations {
            let labels = [("subcluster", lead.name.clone()), ("worker", worker.worker.label().to_owned())];
            which(worker).encode(descriptor.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::counters::Counters;

    #[test]
    fn names_keep_the_law_and_stand_in_the_order_of_the_counters() {
        assert_eq!(symphony_telemetry::check_names(&METRIC_NAMES, include_str!("metrics.rs")), Vec::<String>::new());
        let counters = Counters::default().read();
        assert_eq!(counters.len(), COUNTERS.len());
        for ((counter, _), metric) in counters.iter().zip(COUNTERS) {
            let stem = counter.trim_end_matches("_nanoseconds");
            assert!(metric.name.contains(stem), "{counter} is shown as {}", metric.name);
        }
    }
}
