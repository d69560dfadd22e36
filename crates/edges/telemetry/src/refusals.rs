//! Refused callers of this process, by port.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use symphony_net::Refusal;

use crate::names::CONNECTIONS_REFUSED;

/// The name of the metrics port in metrics.
pub(crate) const PORT: &str = "metrics";

/// Exports all counts, with zeros for the port that every process has.
#[derive(Debug)]
pub(crate) struct RefusalCollector;

impl Collector for RefusalCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (name, help) = (CONNECTIONS_REFUSED.bare(), CONNECTIONS_REFUSED.help);
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        let mut counts: BTreeMap<_, _> = Refusal::ALL.map(|refusal| ((PORT, refusal), 0)).into();
        counts.extend(symphony_net::refusals());
        for ((port, refusal), count) in counts {
            let labels = [("port", port), ("reason", refusal.label())];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
