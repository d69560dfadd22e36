//! The transports of a node's frames: configured and actual, for metrics and console.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use serde_json::{Value, json};
use symphony_config::FramesConfig;
use symphony_net::{Carrier, CarrierPreference, Carriers, Rings, rdma_fabric};
use symphony_telemetry::{Kind, MetricName, Registry, Unit};

/// Number of links by transport.
const LINKS: MetricName = MetricName {
    name: "symphony_frame_links",
    help: "Links of this process that are open now, by what they are for and what carries the frames that come",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &["link", "transport"],
};

/// How often another transport than TCP was wanted but not available.
const REFUSED: MetricName = MetricName {
    name: "symphony_frame_tcp_only_total",
    help: "Links for which shared memory or RDMA was asked and not had: the peer has or wants neither, or cannot be reached so",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &[],
};

/// The cost of waking sleeping readers.
const WAKES: MetricName = MetricName {
    name: "symphony_frame_wakes_total",
    help: "Processes that slept at the other end of shared memory and were woken, for frames or for room",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &[],
};

/// Every metric of the links.
#[cfg(test)]
pub(super) const METRIC_NAMES: [MetricName; 3] = [LINKS, REFUSED, WAKES];

/// The purposes of links.
const LINK_NAMES: [&str; 3] = ["dispatch", "execute", "data"];

/// The transports that this node may use. If a required one is unavailable, the node does not start.
pub(super) fn carriers(config: &FramesConfig, registry: &Registry) -> anyhow::Result<Carriers> {
    let rings = match config.shares().then(|| Rings::start(config.spin())).transpose() {
        Ok(rings) => rings,
        Err(error) if config.refuses_tcp() => anyhow::bail!("frames.required: no shared memory: {error}"),
        Err(error) => {
            tracing::warn!(%error, "no shared memory: frames travel by TCP");
            None
        }
    };
    let fabric = match config.wants_rdma().then(|| rdma_fabric(config.rdma_device())).transpose() {
        Ok(fabric) => fabric,
        Err(reason) if config.refuses_tcp() => anyhow::bail!("frames.required: no RDMA: {reason}"),
        Err(reason) => {
            tracing::warn!(reason, "no RDMA: frames travel by TCP between hosts");
            None
        }
    };
    let preference = CarrierPreference { expected: config.expects_other_than_tcp(), required: config.refuses_tcp() };
    let carriers = Carriers::new(rings, fabric, preference);
    registry.collect(CarrierCollector(carriers.clone()));
    Ok(carriers)
}

/// The open links with their transports.
pub(super) fn json(carriers: &Carriers) -> Value {
    let links = carriers.links().into_iter();
    let links: Vec<_> =
        links.map(|row| json!({ "link": row.link, "peer": row.peer, "transport": row.carrier.label() })).collect();
    json!({ "links": links, "tcp_only": carriers.refusals(), "wakes": wakes(carriers) })
}

fn wakes(carriers: &Carriers) -> u64 {
    carriers.rings().map_or(0, Rings::wake_ups)
}

#[derive(Debug)]
struct CarrierCollector(Carriers);

impl Collector for CarrierCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let links = self.0.links();
        let mut family = encoder.encode_descriptor(LINKS.bare(), LINKS.help, None, MetricType::Gauge)?;
        for link in LINK_NAMES {
            for carrier in Carrier::ALL {
                let count = links.iter().filter(|row| row.link == link && row.carrier == carrier).count() as u64;
                let labels = [("link", link), ("transport", carrier.label())];
                ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        for (name, value) in [(REFUSED, self.0.refusals()), (WAKES, wakes(&self.0))] {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name.bare(), name.help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_keep_the_law() {
        let broken = symphony_telemetry::check_names(&METRIC_NAMES, include_str!("frames.rs"));
        assert_eq!(broken, Vec::<String>::new());
    }

    #[test]
    fn nothing_is_shared_where_that_is_not_wanted() {
        let config = FramesConfig { transport: symphony_config::FrameTransportKind::Tcp, ..FramesConfig::default() };
        let carriers = carriers(&config, &Registry::new("test")).unwrap();
        let _place = carriers.opened("dispatch", "somebody".to_owned());
        assert!(carriers.rings().is_none());
        assert_eq!(json(&carriers)["links"][0]["transport"], "tcp");
    }

    #[tokio::test]
    async fn whoever_wants_rdma_and_has_no_device_goes_on_without_or_does_not_start() {
        let device = "no-such-device".to_owned();
        let transport = symphony_config::FrameTransportKind::Rdma;
        let wanted = FramesConfig { transport, rdma_device: device, ..FramesConfig::default() };
        assert!(carriers(&wanted, &Registry::new("test")).unwrap().rings().is_some(), "on one host memory is shared");
        let required = FramesConfig { required: true, ..wanted };
        let reason = carriers(&required, &Registry::new("test")).unwrap_err().to_string();
        assert!(reason.starts_with("frames.required: no RDMA: "), "{reason}");
    }
}
