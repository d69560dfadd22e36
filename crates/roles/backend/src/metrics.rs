//! The metrics of a backend.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use symphony_telemetry::{Kind, MetricName, Registry, Unit};
use symphony_transport::{LinkedPayloads, ReadCounts, ReadPath, Readings, ViewReceiver};

use crate::backend::Backend;
use crate::counts::Counts;
use crate::executor_in_use::ExecutorInUse;
use crate::model_states::{ModelState, ModelStates};
use crate::plan_intake::BackendIdentity;

const fn counter(name: &'static str, help: &'static str) -> MetricName {
    MetricName { name, help, kind: Kind::Counter, unit: Unit::Count, labels: &[] }
}

/// Every metric of a backend.
pub const METRIC_NAMES: [MetricName; 10] = [
    counter("symphony_backend_plans_total", "Batch plans accepted"),
    counter("symphony_backend_plans_refused_total", "Batch plans refused, those of fenced leaders included"),
    counter("symphony_backend_seals_total", "Seals answered"),
    counter("symphony_backend_requests_failed_total", "Requests in accepted plans that got no answer"),
    counter("symphony_backend_mixed_batches_total", "Batches that ran one trunk for rows of several models"),
    MetricName {
        name: "symphony_backend_execution_seconds_total",
        help: "Execution time of all GPUs, summed",
        kind: Kind::Counter,
        unit: Unit::Seconds,
        labels: &[],
    },
    counter("symphony_backend_model_loads_total", "Models loaded"),
    counter("symphony_backend_model_loads_failed_total", "Models that could not be loaded, or did not fit the memory"),
    counter(
        "symphony_backend_models_hung_total",
        "Batches that did not end in time and were ended, and models that had not gone a minute after they were to",
    ),
    counter(
        "symphony_backend_gpus_lost_total",
        "GPUs whose device fails whatever comes until the backend is restarted",
    ),
];

const MODELS: MetricName = MetricName {
    name: "symphony_backend_models",
    help: "Models that the backend is to hold, by state (loading, ready, failed)",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &["state"],
};
const MODEL_MEMORY: MetricName = MetricName {
    name: "symphony_backend_model_memory_bytes",
    help: "Memory by which the process grew for a model: when it was loaded (static) and by its batches since (dynamic); of models that share a trunk, each its suffix, and the trunk under its digest",
    kind: Kind::Gauge,
    unit: Unit::Bytes,
    labels: &["model", "part"],
};

const INPUTS_MISSING: MetricName = MetricName {
    name: "symphony_backend_inputs_missing_total",
    help: "Inputs without which batches began: not there in time (late), or not to be had from their frontend (gone)",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["why"],
};

const EXECUTOR: MetricName = MetricName {
    name: "symphony_backend_executor_info",
    help: "What runs the batches, and whether it does so because the CUDA that was asked for is not there",
    kind: Kind::Info,
    unit: Unit::None,
    labels: &["executor", "provider", "fell_back"],
};

/// Every metric of the models and of their executors.
pub const MODEL_METRIC_NAMES: [MetricName; 3] = [MODELS, MODEL_MEMORY, EXECUTOR];

const fn by_transport(name: &'static str, help: &'static str, kind: Kind, unit: Unit) -> MetricName {
    MetricName { name, help, kind, unit, labels: &["transport"] }
}

const READ_TIME: MetricName = by_transport(
    "symphony_backend_payload_read_seconds",
    "Time of one read: the inputs that a batch has from one frontend, without the wait for those still being made",
    Kind::Histogram,
    Unit::Seconds,
);
const INPUTS: MetricName =
    by_transport("symphony_backend_payload_inputs_total", "Inputs read", Kind::Counter, Unit::Count);
const INPUT_BYTES: MetricName =
    by_transport("symphony_backend_payload_input_bytes_total", "Bytes of inputs read", Kind::Counter, Unit::Bytes);
const FRONTENDS: MetricName = by_transport(
    "symphony_backend_payload_frontends",
    "Frontends linked now, by the transport that the two agreed on",
    Kind::Gauge,
    Unit::Count,
);
const DAMAGED: MetricName = counter(
    "symphony_backend_payload_damaged_total",
    "Inputs damaged in shared memory and asked for over the link instead; above 0 is a bug, or a frontend that lies",
);

const DELAY: MetricName = MetricName {
    name: "symphony_backend_payload_delay_seconds",
    help: "What one read in a thousand takes longer than, as leads plan by it: whatever its bytes (fixed), and for each MiB (per_mib)",
    kind: Kind::Gauge,
    unit: Unit::Seconds,
    labels: &["part"],
};

/// Every metric of the payload transport.
pub const PAYLOAD_METRIC_NAMES: [MetricName; 7] =
    [READ_TIME, INPUTS, INPUT_BYTES, FRONTENDS, DAMAGED, DELAY, INPUTS_MISSING];

/// Execution time by GPU.
const GPU_BUSY: MetricName = MetricName {
    name: "symphony_backend_gpu_busy_seconds_total",
    help: "Execution time of a GPU's batches",
    kind: Kind::Counter,
    unit: Unit::Seconds,
    labels: &["backend", "gpu", "gpu_kind", "subcluster"],
};

/// Every metric of the GPUs.
pub const GPU_METRIC_NAMES: [MetricName; 1] = [GPU_BUSY];

#[derive(Debug)]
struct BackendCollector(Arc<Counts>);

/// The GPUs of a backend; they keep their names as long as it runs.
#[derive(Debug)]
struct GpuCollector {
    counts: Arc<Counts>,
    backend: String,
    identity: BackendIdentity,
    /// By place.
    kinds: Vec<String>,
    /// The sub-cluster may change.
    view: ViewReceiver,
}

#[derive(Debug)]
struct ExecutorCollector(ExecutorInUse);

#[derive(Debug)]
struct ModelCollector(Arc<ModelStates>);

#[derive(Debug)]
struct PayloadCollector(Arc<LinkedPayloads>);

/// Adds the backend's metrics to a process's registry.
pub fn register_metrics(registry: &Registry, backend: &Backend) {
    registry.collect(ExecutorCollector(backend.in_use()));
    registry.collect(BackendCollector(backend.counts()));
    registry.collect(GpuCollector {
        counts: backend.counts(),
        backend: backend.name().to_owned(),
        identity: backend.identity().clone(),
        kinds: backend.gpu_kinds().to_vec(),
        view: backend.view(),
    });
    registry.collect(ModelCollector(backend.model_states()));
    registry.collect(PayloadCollector(backend.payloads()));
}

impl Collector for GpuCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let view = Arc::clone(&self.view.borrow());
        let subcluster =
            view.backends.get(&self.identity.backend).map_or(self.identity.subcluster, |own| own.subcluster);
        let mut family = encoder.encode_descriptor(GPU_BUSY.bare(), GPU_BUSY.help, None, MetricType::Counter)?;
        // Before the first view, and once it was removed: under another name it would be a second series.
        let Some(subcluster) = view.subclusters.get(&subcluster) else { return Ok(()) };
        for ((gpu, kind), busy) in self.identity.gpus.iter().zip(&self.kinds).zip(&self.counts.gpu_busy_ns) {
            let (gpu, seconds) = (gpu.to_string(), busy.load(Ordering::Relaxed) as f64 / 1e9);
            let labels = [
                ("backend", self.backend.as_str()),
                ("gpu", gpu.as_str()),
                ("gpu_kind", kind.as_str()),
                ("subcluster", subcluster.name.as_str()),
            ];
            ConstCounter::new(seconds).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl Collector for ExecutorCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let info = Info::new(self.0.labels());
        info.encode(encoder.encode_descriptor(EXECUTOR.bare(), EXECUTOR.help, None, info.metric_type())?)
    }
}

impl Collector for PayloadCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Readings { reads, damaged, delay, pairs } = self.0.readings();
        let mut each =
            |name: &MetricName, encode: &dyn Fn(ReadPath, &ReadCounts, MetricEncoder<'_>) -> std::fmt::Result| {
                let metric_type = match name.kind {
                    Kind::Histogram => MetricType::Histogram,
                    Kind::Gauge => MetricType::Gauge,
                    Kind::Counter | Kind::Info => MetricType::Counter,
                };
                let mut family = encoder.encode_descriptor(name.bare(), name.help, None, metric_type)?;
                for (way, counts) in ReadPath::ALL.into_iter().zip(&reads) {
                    encode(way, counts, family.encode_family(&[("transport", way.label())])?)?;
                }
                Ok::<_, std::fmt::Error>(())
            };
        each(&READ_TIME, &|_, counts, encoder| counts.times.encode(encoder))?;
        each(&INPUTS, &|_, counts, encoder| ConstCounter::new(counts.inputs).encode(encoder))?;
        each(&INPUT_BYTES, &|_, counts, encoder| ConstCounter::new(counts.bytes).encode(encoder))?;
        each(&FRONTENDS, &|way, _, encoder| {
            ConstGauge::new(pairs.iter().filter(|pair| pair.way == way).count() as u64).encode(encoder)
        })?;
        let damaged = ConstCounter::new(damaged);
        let descriptor = encoder.encode_descriptor(DAMAGED.bare(), DAMAGED.help, None, damaged.metric_type())?;
        damaged.encode(descriptor)?;
        let mut family = encoder.encode_descriptor(DELAY.bare(), DELAY.help, None, MetricType::Gauge)?;
        for (part, time) in delay.into_iter().flat_map(|delay| [("fixed", delay.fixed), ("per_mib", delay.per_mib)]) {
            ConstGauge::new(time.as_secs_f64()).encode(family.encode_family(&[("part", part)])?)?;
        }
        Ok(())
    }
}

impl Collector for ModelCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let entries = self.0.entries();
        let mut family = encoder.encode_descriptor(MODELS.bare(), MODELS.help, None, MetricType::Gauge)?;
        for state in ModelState::ALL {
            let count = entries.iter().filter(|entry| entry.state == state).count();
            ConstGauge::new(count as u64).encode(family.encode_family(&[("state", state.label())])?)?;
        }
        let mut family = encoder.encode_descriptor(MODEL_MEMORY.bare(), MODEL_MEMORY.help, None, MetricType::Gauge)?;
        let models = entries.iter().filter_map(|entry| Some((entry.name.clone(), entry.memory()?)));
        let trunks = self.0.trunks().into_iter().map(|(trunk, memory)| (format!("trunk {trunk}"), memory));
        for (name, memory) in models.chain(trunks) {
            let name = name.as_str();
            for (part, bytes) in [("static", memory.static_bytes), ("dynamic", memory.dynamic_bytes)] {
                ConstGauge::new(bytes).encode(family.encode_family(&[("model", name), ("part", part)])?)?;
            }
        }
        Ok(())
    }
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
            read(&counts.mixed_batches),
            counts.gpu_busy_ns.iter().map(read).sum::<f64>() / 1e9,
            read(&counts.loads),
            read(&counts.loads_failed),
            read(&counts.models_hung),
            read(&counts.gpus_lost),
        ];
        for (name, value) in METRIC_NAMES.iter().zip(values) {
            let counter = ConstCounter::new(value);
            let descriptor = encoder.encode_descriptor(name.bare(), name.help, None, counter.metric_type())?;
            counter.encode(descriptor)?;
        }
        let name = &INPUTS_MISSING;
        let mut family = encoder.encode_descriptor(name.bare(), name.help, None, MetricType::Counter)?;
        for (why, count) in [("late", &counts.inputs_late), ("gone", &counts.inputs_gone)] {
            ConstCounter::new(count.load(Ordering::Relaxed)).encode(family.encode_family(&[("why", why)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_keep_the_law() {
        let names = [&super::METRIC_NAMES[..], &super::MODEL_METRIC_NAMES, &super::GPU_METRIC_NAMES];
        let names = [&names.concat()[..], &super::PAYLOAD_METRIC_NAMES].concat();
        assert_eq!(symphony_telemetry::check_names(&names, include_str!("metrics.rs")), Vec::<String>::new());
    }
}
