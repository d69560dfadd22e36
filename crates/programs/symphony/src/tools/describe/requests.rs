//! What became of requests since their frontends started.

use serde_json::{Value, json};
use symphony_telemetry::buckets::{REQUEST_SECONDS, quantile};
use symphony_types::FrontendId;

use crate::inspect::sample::{ModelCounts, Sample};

/// Of a model, over all frontends that answered.
pub(super) fn of_model(sample: &Sample, model: &str) -> ModelCounts {
    let of = sample.frontends.values().filter_map(|counts| counts.as_ref().ok()?.models.get(model));
    of.fold(ModelCounts::default(), |mut sum, counts| {
        sum.received += counts.received;
        sum.in_time += counts.in_time;
        sum.late += counts.late;
        sum.dropped += counts.dropped;
        sum.failed += counts.failed;
        sum.refused += counts.refused;
        sum.executed_items += counts.executed_items;
        sum.executed_batches += counts.executed_batches;
        sum.latency_counts.resize(sum.latency_counts.len().max(counts.latency_counts.len()), 0);
        for (sum, count) in sum.latency_counts.iter_mut().zip(&counts.latency_counts) {
            *sum += count;
        }
        sum
    })
}

/// Frontends whose counts are unknown, and why.
pub(super) fn unknown(sample: &Sample) -> Vec<String> {
    let silent = sample.frontends.iter().filter_map(|(id, counts)| Some((id, counts.as_ref().err()?)));
    let name = |id: &FrontendId| {
        sample.view.frontends.get(id).map_or_else(String::new, |frontend| format!("{} ", frontend.name))
    };
    silent.map(|(id, error)| format!("frontend {}({id}) does not answer: {error}", name(id))).collect()
}

/// Counts as a sentence.
pub(super) fn words(counts: &ModelCounts) -> String {
    let ModelCounts { received, in_time, late, dropped, failed, refused, .. } = counts;
    if *received == 0 && *refused == 0 {
        return "none since the frontends started".to_owned();
    }
    let outcomes = format!("{in_time} in time, {late} late, {dropped} dropped, {failed} failed, {refused} refused");
    let quantiles = match (millis(counts, 0.5), millis(counts, 0.99)) {
        (Some(p50), Some(p99)) => format!("; p50 {p50:.1} ms, p99 {p99:.1} ms"),
        _ => String::new(),
    };
    let batch = match mean_batch(counts) {
        Some(items) => format!("; {items:.2} items a batch"),
        None => String::new(),
    };
    format!("{received} requests since the frontends started: {outcomes}{quantiles}{batch}")
}

/// Counts as a value.
pub(super) fn value(counts: &ModelCounts) -> Value {
    let ModelCounts { received, in_time, late, dropped, failed, refused, .. } = counts;
    json!({ "received": received, "in_time": in_time, "late": late, "dropped": dropped, "failed": failed,
            "refused": refused, "p50_ms": millis(counts, 0.5), "p99_ms": millis(counts, 0.99),
            "mean_batch": mean_batch(counts) })
}

fn millis(counts: &ModelCounts, share: f64) -> Option<f64> {
    quantile(&REQUEST_SECONDS, &counts.latency_counts, share).map(|seconds| seconds * 1e3)
}

fn mean_batch(counts: &ModelCounts) -> Option<f64> {
    (counts.executed_batches > 0.0).then(|| counts.executed_items as f64 / counts.executed_batches)
}
