//! What a backend counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use symphony_telemetry::{Kind, MetricName, Registry, Unit};

use crate::Backend;

const fn counter(name: &'static str, help: &'static str) -> MetricName {
    MetricName { name, help, kind: Kind::Counter, unit: Unit::Count, labels: &[] }
}

/// Every metric of a backend.
pub const METRIC_NAMES: [MetricName; 5] = [
    counter("symphony_backend_plans_total", "Batch plans accepted"),
    counter("symphony_backend_plans_refused_total", "Batch plans refused, those of fenced leaders included"),
    counter("symphony_backend_seals_total", "Seals answered"),
    counter("symphony_backend_requests_failed_total", "Requests in accepted plans that got no answer"),
    MetricName {
        name: "symphony_backend_execution_seconds_total",
        help: "Execution time of all GPUs, summed",
        kind: Kind::Counter,
        unit: Unit::Seconds,
        labels: &[],
    },
];

/// The counts; they only grow.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) plans: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) seals: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) execution_ns: AtomicU64,
}

impl Counts {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct BackendCollector(Arc<Counts>);

/// Adds the backend's metrics to a process's registry.
pub fn register_metrics(registry: &Registry, backend: &Backend) {
    registry.collect(BackendCollector(backend.counts()));
}

impl Collector for BackendCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let counts = &self.0;
        let values = [
            read(&counts.plans),
            read(&counts.refused),
            read(&counts.seals),
            read(&counts.failed),
            read(&counts.execution_ns) / 1e9,
        ];
        for (name, value) in METRIC_NAMES.iter().zip(values) {
            let counter = ConstCounter::new(value);
            let descriptor = encoder.encode_descriptor(name.bare(), name.help, None, counter.metric_type())?;
            counter.encode(descriptor)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_keep_the_law() {
        assert_eq!(symphony_telemetry::check_law(&super::METRIC_NAMES), Vec::<String>::new());
    }
}
