//! The metrics of one process.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{self as model, MetricFamily};
use prometheus_client::encoding::prometheus_protobuf::{self, EncodeError};
use prometheus_client::encoding::{EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry as Inner};
use prost::Message as _;

use crate::invariant::ViolationCollector;
use crate::process::ProcessCollector;
use crate::refusals::RefusalCollector;
use crate::{Kind, MetricName, names, plain_text};

/// The metrics of one process, cheap to clone and pass around.
///
/// Metrics are registered at start-up and updated through the handles that [`Registry::register`] returns; the lock
/// inside is taken to register and to scrape, never to count.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Mutex<Registered>>,
}

struct Registered {
    metrics: Inner,
    names: BTreeSet<&'static str>,
}

impl Registry {
    /// A registry that already has the metrics every process has: build, process, broken invariants.
    #[must_use]
    pub fn new(role: &str) -> Self {
        let mut metrics = Inner::default();
        let facts = vec![("version", env!("CARGO_PKG_VERSION").to_owned()), ("role", role.to_owned())];
        metrics.register(names::BUILD.bare(), names::BUILD.help, Info::new(facts));
        metrics.register_collector(Box::new(ProcessCollector::new()));
        metrics.register_collector(Box::new(ViolationCollector));
        metrics.register_collector(Box::new(RefusalCollector));
        let names = names::ALL.iter().map(|metric| metric.name).collect();
        Self { inner: Arc::new(Mutex::new(Registered { metrics, names })) }
    }

    /// Adds a metric under its name and gives the handle back.
    ///
    /// # Panics
    /// If the name is taken or the metric is not of the name's kind: both are mistakes in the program, seen at start.
    pub fn register<M: Metric + Clone>(&self, name: &MetricName, metric: M) -> M {
        let expected = match name.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
            Kind::Info => MetricType::Info,
        };
        let given = EncodeMetric::metric_type(&metric);
        assert_eq!(given.as_str(), expected.as_str(), "metric {} is of another type than its name says", name.name);
        let mut inner = self.lock();
        assert!(inner.names.insert(name.name), "metric {} is registered twice", name.name);
        inner.metrics.register(name.bare(), name.help, metric.clone());
        metric
    }

    /// Adds metrics that are computed when they are scraped; they describe themselves by their [`MetricName`]s.
    pub fn collect(&self, collector: impl Collector) {
        self.lock().metrics.register_collector(Box::new(collector));
    }

    /// Everything, in the OpenMetrics text format.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut out = String::new();
        text::encode(&mut out, &self.lock().metrics).expect("writing to a string cannot fail");
        out
    }

    /// The same in the text format 0.0.4, which Prometheus had before.
    #[must_use]
    pub fn encode_plain(&self) -> String {
        plain_text::from_open_metrics(&self.encode())
    }

    /// The same as `io.prometheus.client.MetricFamily` messages, each behind its length: with native histograms.
    ///
    /// # Errors
    /// If the clock was before 1970 when a histogram was made.
    pub fn encode_protobuf(&self) -> Result<Vec<u8>, EncodeError> {
        let mut families = prometheus_protobuf::encode(&self.lock().metrics)?;
        let mut out = Vec::new();
        for family in &mut families {
            untype(family);
            family.encode_length_delimited(&mut out)?;
        }
        Ok(out)
    }

    fn lock(&self) -> MutexGuard<'_, Registered> {
        // A panic while scraping leaves nothing half done that the next scrape could trip over.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts the values of a family without a type where scrapers look for them: the library leaves them where those of
/// gauges are, and Prometheus reads 0.
fn untype(family: &mut MetricFamily) {
    if family.r#type == model::MetricType::Untyped as i32 {
        for metric in &mut family.metric {
            metric.untyped = metric.gauge.take().map(|gauge| model::Untyped { value: gauge.value });
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("names", &self.lock().names).finish()
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::DescriptorEncoder;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::{ConstGauge, Gauge};

    use super::*;
    use crate::{Unit, check_names};

    const REQUESTS: MetricName = MetricName {
        name: "symphony_requests_total",
        help: "Requests accepted",
        kind: Kind::Counter,
        unit: Unit::Count,
        labels: &["model"],
    };

    #[test]
    fn names_of_this_crate_keep_the_law_and_are_all_scraped_as_written() {
        assert_eq!(check_names(&names::ALL, include_str!("names.rs")), Vec::<String>::new());
        let text = Registry::new("test").encode();
        for metric in names::ALL {
            assert!(text.lines().any(|l| l.starts_with(metric.name)), "{} is not in\n{text}", metric.name);
            assert!(text.contains(&format!("# HELP {} {}", metric.bare(), metric.help)), "{}", metric.name);
        }
        assert!(text.contains("role=\"test\"") && text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn a_registered_family_is_scraped_under_its_own_name() {
        let registry = Registry::new("test");
        let family = registry.register(&REQUESTS, Family::<[(&str, &str); 1], Counter>::default());
        family.get_or_create(&[("model", "digits")]).inc_by(3);
        assert!(registry.encode().contains("\nsymphony_requests_total{model=\"digits\"} 3\n"), "{}", registry.encode());
    }

    #[derive(Debug)]
    struct WithoutType;

    impl Collector for WithoutType {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            let gauge = ConstGauge::new(7_u64);
            gauge.encode(encoder.encode_descriptor("nv_inference_count", "Items", None, MetricType::Unknown)?)
        }
    }

    #[test]
    fn what_has_no_type_has_its_value_in_protobuf_too() {
        let registry = Registry::new("test");
        registry.collect(WithoutType);
        let bytes = registry.encode_protobuf().unwrap();
        let (mut rest, mut found) = (bytes.as_slice(), None);
        while !rest.is_empty() {
            let family = MetricFamily::decode_length_delimited(&mut rest).unwrap();
            if family.name == "nv_inference_count" {
                found = Some(family);
            }
        }
        let family = found.unwrap();
        assert_eq!(family.r#type, model::MetricType::Untyped as i32);
        let metric = &family.metric[0];
        assert_eq!((metric.untyped.as_ref().map(|untyped| untyped.value), &metric.gauge), (Some(7.0), &None));
    }

    #[test]
    #[should_panic(expected = "symphony_requests_total is registered twice")]
    fn a_name_cannot_be_taken_twice() {
        let registry = Registry::new("test");
        registry.register(&REQUESTS, Counter::<u64>::default());
        registry.register(&REQUESTS, Counter::<u64>::default());
    }

    #[test]
    #[should_panic(expected = "of another type than its name says")]
    fn a_gauge_cannot_hide_under_a_counters_name() {
        Registry::new("test").register(&REQUESTS, Gauge::<i64>::default());
    }
}
