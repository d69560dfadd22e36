//! When the certificates of a node end, at each scrape: they are renewed while the process runs.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use symphony_telemetry::{Kind, MetricName, Registry, Unit};

/// When a certificate expires: alert some weeks before.
pub(super) const EXPIRES: MetricName = MetricName {
    name: "symphony_certificate_expires_timestamp_seconds",
    help: "When a certificate of this node expires, in seconds since 1970",
    kind: Kind::Gauge,
    unit: Unit::Seconds,
    labels: &["certificate"],
};

type Expires = Box<dyn Fn() -> Option<SystemTime> + Send + Sync>;

/// The certificates of this node, by what they are for.
#[derive(Clone, Default)]
pub(super) struct Certificates(Arc<Mutex<Vec<(String, Expires)>>>);

impl Certificates {
    /// Shown in the registry, with those that are added later.
    pub(super) fn shown_in(registry: &Registry) -> Self {
        let certificates = Self::default();
        registry.collect(certificates.clone());
        certificates
    }

    /// Adds one, of which `expires` says the end as of now, if it is known.
    pub(super) fn add(
        &self,
        what: impl Into<String>,
        expires: impl Fn() -> Option<SystemTime> + Send + Sync + 'static,
    ) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((what.into(), Box::new(expires)));
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

impl Collector for Certificates {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let certificates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if certificates.is_empty() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(EXPIRES.bare(), EXPIRES.help, None, MetricType::Gauge)?;
        for (what, expires) in certificates.iter() {
            let Some(expires) = expires() else { continue };
            let seconds = expires.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
            ConstGauge::new(seconds).encode(family.encode_family(&[("certificate", what.as_str())])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_name_keeps_the_law() {
        let broken = symphony_telemetry::check_names(&[EXPIRES], include_str!("certificates.rs"));
        assert_eq!(broken, Vec::<String>::new());
    }

    #[test]
    fn each_certificate_is_shown_with_its_end_as_it_is_now() {
        let registry = Registry::new("test");
        let certificates = Certificates::shown_in(&registry);
        assert!(!registry.encode().contains(EXPIRES.name), "there is none");
        let ends = Arc::new(Mutex::new(UNIX_EPOCH + Duration::from_secs(7)));
        let renewed = Arc::clone(&ends);
        certificates.add("node", || Some(UNIX_EPOCH + Duration::from_secs(5)));
        certificates.add("unreadable", || None);
        certificates.add("public", move || Some(*ends.lock().unwrap()));
        let shows = |line: &str| assert!(registry.encode().contains(line), "{}", registry.encode());
        shows("symphony_certificate_expires_timestamp_seconds{certificate=\"node\"} 5.0\n");
        shows("symphony_certificate_expires_timestamp_seconds{certificate=\"public\"} 7.0\n");
        assert!(!registry.encode().contains("unreadable"));
        *renewed.lock().unwrap() = UNIX_EPOCH + Duration::from_secs(9);
        shows("symphony_certificate_expires_timestamp_seconds{certificate=\"public\"} 9.0\n");
    }
}
