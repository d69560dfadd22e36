//! The autoscaling advice as metrics of the Raft leader. Other replicas have no advice and show none.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use symphony_controllers::{KindAdvice, Reason};
use symphony_telemetry::{Kind, MetricName, Unit};

use crate::group::state_machine::SharedState;
use crate::planning::reported::Reported;

const fn gpus(name: &'static str, help: &'static str) -> MetricName {
    MetricName { name, help, kind: Kind::Gauge, unit: Unit::Count, labels: &["subcluster", "gpu_kind"] }
}

const WANTED: MetricName =
    gpus("symphony_control_gpus_wanted", "GPUs that there should be, by the advice of the Raft leader");
const THERE: MetricName = gpus("symphony_control_gpus_there", "GPUs that take plans, those set aside included");
const RELEASABLE: MetricName =
    gpus("symphony_control_gpus_releasable", "GPUs that are named to be drained and given back");
const DEMANDED: MetricName = MetricName {
    name: "symphony_control_gpus_demanded",
    help: "GPUs that deferred batches of all that is asked would keep busy, by which the advice goes",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &["subcluster"],
};
const PRICE: MetricName = gpus(
    "symphony_control_gpus_price",
    "price per hour of the GPUs that there should be, of kinds with a price, where there is a budget",
);
const REASON: MetricName = MetricName {
    name: "symphony_control_scaling_reason",
    help: "1 for the reason of the advice, 0 for the others (enough, bad_rate, little_idle, idle, limits, bad_while_idle, fleet)",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &["subcluster", "reason"],
};

/// Every metric of the advice.
pub const SCALING_METRIC_NAMES: [MetricName; 6] = [WANTED, THERE, RELEASABLE, PRICE, DEMANDED, REASON];

/// The value shown for a kind with this many GPUs.
type Value = fn(&KindAdvice, usize) -> usize;

/// Reads the advice at each scrape.
#[derive(Clone, Debug)]
pub struct ScalingCollector {
    pub(crate) state: SharedState,
    pub(crate) reported: Arc<Mutex<Reported>>,
}

impl Collector for ScalingCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let state = self.state.read();
        let advised = self.reported.lock().unwrap_or_else(PoisonError::into_inner).scaling.all(&state);
        let each: [(&MetricName, Value); 3] = [
            (&WANTED, |advice, _| advice.target as usize),
            (&THERE, |_, there| there),
            (&RELEASABLE, |advice, _| advice.release.len()),
        ];
        for (name, value) in each {
            let mut family = encoder.encode_descriptor(name.bare(), name.help, None, MetricType::Gauge)?;
            for (subcluster, advised, there) in &advised {
                for ((kind, advice), there) in advised.kinds.iter().zip(&advised.advice.kinds).zip(there) {
                    let labels = [("subcluster", *subcluster), ("gpu_kind", kind.as_str())];
                    ConstGauge::new(value(advice, *there) as i64).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let mut family = encoder.encode_descriptor(PRICE.bare(), PRICE.help, None, MetricType::Gauge)?;
        for (subcluster, advised, _) in &advised {
            let prices = advised.fleet.iter().flat_map(|fleet| &fleet.prices);
            for ((kind, advice), price) in advised.kinds.iter().zip(&advised.advice.kinds).zip(prices) {
                let Some(price_per_hour) = price else { continue };
                let labels = [("subcluster", *subcluster), ("gpu_kind", kind.as_str())];
                let price = price_per_hour * f64::from(advice.target);
                ConstGauge::new(price).encode(family.encode_family(&labels)?)?;
            }
        }
        let mut family = encoder.encode_descriptor(DEMANDED.bare(), DEMANDED.help, None, MetricType::Gauge)?;
        for (subcluster, advised, _) in &advised {
            // A value that a lead does not measure has no series.
            let Some(demand) = advised.gpu_use.demand else { continue };
            ConstGauge::new(demand).encode(family.encode_family(&[("subcluster", *subcluster)])?)?;
        }
        let mut family = encoder.encode_descriptor(REASON.bare(), REASON.help, None, MetricType::Gauge)?;
        for (subcluster, advised, _) in &advised {
            for reason in Reason::ALL {
                let labels = [("subcluster", *subcluster), ("reason", reason.label())];
                let is = i64::from(advised.advice.reason == reason);
                ConstGauge::new(is).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use symphony_protocol::control as pb;
    use symphony_telemetry::{Registry, check_names};

    use super::*;
    use crate::planning::problem::tests::{cluster, loaded};
    use crate::planning::{EpochSettings, FleetSettings, ScalingSettings};

    #[test]
    fn what_is_advised_is_scraped_and_gone_with_the_leadership() {
        assert_eq!(check_names(&SCALING_METRIC_NAMES, include_str!("scaling_metrics.rs")), Vec::<String>::new());
        for reason in Reason::ALL {
            assert!(REASON.help.contains(reason.label()), "{}", reason.label());
        }
        let mut settled = cluster(&["pool"]);
        loaded(&mut settled, "m", "pool");
        let state = SharedState::default();
        state.replace(|state| *state = settled);
        let price_per_hour = [("gpu".to_owned(), 0.5)].into();
        let fleet = Some(FleetSettings { budget_per_hour: 2.0, price_per_hour });
        let scaling = ScalingSettings { fleet, ..ScalingSettings::default() };
        let settings = EpochSettings { scaling, ..EpochSettings::default() };
        let reported = Arc::new(Mutex::new(Reported::new(&settings, || 0)));
        let registry = Registry::new("test");
        registry.collect(ScalingCollector { state: state.clone(), reported: Arc::clone(&reported) });
        assert!(!registry.encode().contains("subcluster="), "nobody has reported");

        // Half of the requests are lost and no GPU idles: deferred batches of all requests would keep four GPUs busy.
        let start = Instant::now();
        for second in 0..10 {
            let (executed, dropped, request_items) = (100 * second, 100 * second, vec![200 * second]);
            let model = pb::ModelLoad { model: 1, executed, dropped, request_items, ..Default::default() };
            let gpu = |gpu| pb::GpuLoad { gpu, busy_ns: second * 1_000_000_000, ..Default::default() };
            let (models, gpus, demand_ns) = (vec![model], vec![gpu(1), gpu(2)], Some(second * 4_000_000_000));
            let load = pb::SubclusterLoad { subcluster: 1, token: 5, models, gpus, demand_ns, ..Default::default() };
            let (now, state) = (start + Duration::from_secs(second), state.read());
            reported.lock().unwrap().take(now, &state, &[load]);
        }
        let target = reported.lock().unwrap().scaling.all(&state.read())[0].1.advice.kinds[0].target;
        assert!((3..=4).contains(&target), "{target}: the budget buys four");
        let text = registry.encode();
        let says = |line: String| assert!(text.lines().any(|shown| shown == line), "no `{line}` in\n{text}");
        let kind = "subcluster=\"pool\",gpu_kind=\"gpu\"";
        says(format!("symphony_control_gpus_wanted{{{kind}}} {target}"));
        says(format!("symphony_control_gpus_there{{{kind}}} 2"));
        says(format!("symphony_control_gpus_releasable{{{kind}}} 0"));
        says(format!("symphony_control_gpus_price{{{kind}}} {:?}", f64::from(target) * 0.5));
        says("symphony_control_gpus_demanded{subcluster=\"pool\"} 4.0".to_owned());
        says("symphony_control_scaling_reason{subcluster=\"pool\",reason=\"bad_rate\"} 1".to_owned());
        says("symphony_control_scaling_reason{subcluster=\"pool\",reason=\"enough\"} 0".to_owned());

        reported.lock().unwrap().clear();
        assert!(!registry.encode().contains("subcluster="), "it leads no more");
    }
}
