//! The smallest metrics of a crate, to copy from: one that is counted, and one that is computed when it is scraped.
//! The other steps are in docs/internals/recipes/metric.md.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use symphony_telemetry::{Kind, MetricName, Registry, Unit};

const BATCHES: MetricName = MetricName {
    name: "symphony_skeleton_batches_total",
    help: "Batches that were run",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &[],
};
const WAITING: MetricName = MetricName {
    name: "symphony_skeleton_waiting_seconds",
    help: "How long the oldest request of a model has waited",
    kind: Kind::Gauge,
    unit: Unit::Seconds,
    labels: &["model"],
};

/// Every metric of this file.
pub(crate) const METRIC_NAMES: [MetricName; 2] = [BATCHES, WAITING];

/// What is counted; clones share their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) batches: Counter,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &Registry) {
        registry.register(&BATCHES, self.batches.clone());
    }
}

/// What is computed: models come and go, and so do their values.
#[derive(Debug)]
pub(crate) struct WaitingCollector(pub(crate) BTreeMap<String, f64>);

impl Collector for WaitingCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(WAITING.bare(), WAITING.help, None, MetricType::Gauge)?;
        for (model, &seconds) in &self.0 {
            ConstGauge::new(seconds).encode(family.encode_family(&[("model", model.as_str())])?)?;
        }
        Ok(())
    }
}
