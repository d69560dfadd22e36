//! The statistics of models under the names that Triton gives its metrics, for dashboards and alerts that were made for
//! it: `frontend.metrics_triton_names`.

use std::fmt;
use std::sync::Weak;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::inner::Inner;
use crate::oip::{ModelStatistics, Span};

/// A metric of Triton's: its name, its description, and its value.
type Shown = (&'static str, &'static str, fn(&ModelStatistics) -> u64);

/// Whole microseconds.
const fn micros(span: &Span) -> u64 {
    span.total.get() / 1000
}

/// Inputs are fetched while another batch runs and outputs go out after it, so both compute steps beside inference are
/// 0.
const ALL: [Shown; 9] = [
    ("nv_inference_request_success", "Requests answered", |of| of.success.count),
    ("nv_inference_request_failure", "Requests that ended otherwise", |of| of.fail.count),
    ("nv_inference_count", "Items answered", |of| of.inference_count),
    ("nv_inference_exec_count", "Batches run", |of| of.execution_count),
    ("nv_inference_request_duration_us", "Time from arrival to answer, summed", |of| micros(&of.success)),
    ("nv_inference_queue_duration_us", "Time before execution, summed", |of| micros(&of.queue)),
    ("nv_inference_compute_input_duration_us", "Always 0", |_| 0),
    ("nv_inference_compute_infer_duration_us", "Execution time, summed", |of| micros(&of.compute)),
    ("nv_inference_compute_output_duration_us", "Always 0", |_| 0),
];

/// Weak, since the registry outlives the frontend.
#[derive(Debug)]
pub(crate) struct TritonCollector(pub(crate) Weak<Inner>);

impl Collector for TritonCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(inner) = self.0.upgrade() else { return Ok(()) };
        encode(&inner.statistics.of(None), encoder)
    }
}

fn encode(statistics: &[ModelStatistics], mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, value) in ALL {
        // Of no type: Triton's counters lack the suffix that the format demands of those.
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Unknown)?;
        for of in statistics {
            let labels = [("model", of.model.clone()), ("version", of.version.to_string())];
            ConstGauge::new(value(of)).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use symphony_telemetry::Registry;
    use symphony_types::Nanos;

    use super::*;

    #[derive(Debug)]
    struct Fixed(ModelStatistics);

    impl Collector for Fixed {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            encode(std::slice::from_ref(&self.0), encoder)
        }
    }

    #[test]
    fn the_statistics_have_tritons_names_and_units() {
        let span = |count, ms| Span { count, total: Nanos::from_millis(ms) };
        let statistics = ModelStatistics {
            model: "m".into(),
            version: 3,
            inference_count: 8,
            execution_count: 2,
            success: span(4, 40),
            fail: span(1, 9),
            queue: span(4, 30),
            compute: span(4, 10),
            ..ModelStatistics::default()
        };
        let registry = Registry::new("test");
        registry.collect(Fixed(statistics));
        let text = registry.encode_plain();
        for (name, value) in [
            ("request_success", 4),
            ("request_failure", 1),
            ("count", 8),
            ("exec_count", 2),
            ("request_duration_us", 40_000),
            ("queue_duration_us", 30_000),
            ("compute_infer_duration_us", 10_000),
            ("compute_input_duration_us", 0),
        ] {
            let line = format!("\nnv_inference_{name}{{model=\"m\",version=\"3\"}} {value}\n");
            assert!(text.contains(&line), "{line} is not in\n{text}");
            assert!(text.contains(&format!("\n# TYPE nv_inference_{name} untyped\n")), "{name}");
        }
    }
}
