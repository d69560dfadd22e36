//! Collects the ledger, the request tables and the models as metrics at each scrape (their names: `metrics.rs`).

use std::sync::{Arc, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use symphony_telemetry::{MetricName, Registry};
use symphony_transport::SharedInputs;

use crate::counts::ledger::Ledger;
use crate::inner::Inner;
use crate::metrics;
use crate::oip::{ModelInfo, ModelState};
use crate::requests::request_table::RequestTable;

#[derive(Debug)]
struct FrontendCollector {
    tables: Vec<Arc<RequestTable>>,
    ledger: Arc<Ledger>,
    inputs: Vec<Arc<SharedInputs>>,
}

pub(crate) fn register(
    registry: &Registry,
    tables: Vec<Arc<RequestTable>>,
    ledger: &Arc<Ledger>,
    inputs: Vec<Arc<SharedInputs>>,
) {
    registry.collect(FrontendCollector { tables, ledger: Arc::clone(ledger), inputs });
}

impl Collector for FrontendCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.ledger.counts();
        let mut write = |name: &MetricName, metric: &dyn EncodeMetric| {
            let descriptor = encoder.encode_descriptor(name.bare(), name.help, None, metric.metric_type())?;
            metric.encode(descriptor)
        };
        write(
            &metrics::IN_FLIGHT,
            &ConstGauge::new(self.tables.iter().map(|table| table.len()).sum::<usize>() as i64),
        )?;
        write(&metrics::ACCEPTED, &ConstCounter::new(counts.accepted))?;
        write(&metrics::RESULTS, &ConstCounter::new(counts.results))?;
        write(&metrics::DUPLICATES, &ConstGauge::new(counts.duplicate_ratio()))?;
        write(&metrics::DISCARDED, &ConstCounter::new(counts.discarded))?;
        write(&metrics::REDRIVEN, &ConstCounter::new(counts.redriven))?;
        let of_inputs = |value: fn(&SharedInputs) -> u64| self.inputs.iter().map(|inputs| value(inputs)).sum::<u64>();
        write(&metrics::SHARED_READERS, &ConstGauge::new(of_inputs(|inputs| inputs.readers() as u64)))?;
        write(&metrics::SHARED_BYTES, &ConstGauge::new(of_inputs(SharedInputs::used_bytes)))?;
        write(&metrics::SHARED_REFUSED, &ConstCounter::new(of_inputs(SharedInputs::refused)))
    }
}

/// Counts models at each scrape. Weak, since the registry outlives the frontend.
#[derive(Debug)]
pub(crate) struct ModelCollector(pub(crate) Weak<Inner>);

impl Collector for ModelCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let models = self.0.upgrade().map(|inner| inner.listed_models()).unwrap_or_default();
        let name = &metrics::MODELS;
        let mut family = encoder.encode_descriptor(name.bare(), name.help, None, MetricType::Gauge)?;
        let is = |label: &str, state: &ModelState| match state {
            ModelState::Ready => label == "ready",
            ModelState::Loading => label == "loading",
            ModelState::Unloading | ModelState::NotLoaded | ModelState::NoGpu(_) | ModelState::Unavailable(_) => {
                label == "unavailable"
            }
        };
        for label in ["ready", "loading", "unavailable"] {
            let count = models.iter().filter(|model| is(label, &model.info.state)).count();
            ConstGauge::new(count as i64).encode(family.encode_family(&[("state", label)])?)?;
        }
        let name = &metrics::MODEL_READY;
        let mut family = encoder.encode_descriptor(name.bare(), name.help, None, MetricType::Gauge)?;
        for ListedModel { info, unready, .. } in &models {
            let labels = [("model", info.loaded_as.as_str()), ("reason", unready.unwrap_or_default())];
            ConstGauge::new(i64::from(unready.is_none())).encode(family.encode_family(&labels)?)?;
        }
        let name = &metrics::MODEL_SLO;
        let mut family = encoder.encode_descriptor(name.bare(), name.help, None, MetricType::Gauge)?;
        for ListedModel { info, subcluster, .. } in &models {
            let labels = [("model", info.loaded_as.as_str()), ("subcluster", subcluster.as_str())];
            ConstGauge::new(info.slo.as_secs_f64()).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// A model or pipeline, and whether it can be asked.
pub(crate) struct ListedModel {
    pub(crate) info: Arc<ModelInfo>,
    /// The name of the sub-cluster that serves it; its id while that is not known.
    pub(crate) subcluster: String,
    /// Why it cannot be asked: the reason that requests are refused for, or `draining` if nothing is accepted here.
    pub(crate) unready: Option<&'static str>,
}
