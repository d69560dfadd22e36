//! The metrics of a replica of the top-level group.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use symphony_telemetry::{Kind, MetricName, Registry, Unit};

const fn count(name: &'static str, help: &'static str, kind: Kind) -> MetricName {
    MetricName { name, help, kind, unit: Unit::Count, labels: &[] }
}

const LEADS: MetricName =
    count("symphony_federation_is_leader", "1 while this replica leads the federation", Kind::Gauge);
const PLAN: MetricName =
    count("symphony_federation_plan", "Version of the plan as this replica has applied it", Kind::Gauge);
const CLUSTERS: MetricName = count("symphony_federation_clusters", "Clusters of the federation", Kind::Gauge);
const LOST: MetricName =
    count("symphony_federation_clusters_lost", "Of them, those of which no quorum answers", Kind::Gauge);
const MODELS: MetricName = count("symphony_federation_models", "Models of the federation", Kind::Gauge);
const UNSERVED: MetricName =
    count("symphony_federation_models_unserved", "Of them, those without a home that answers", Kind::Gauge);
const MOVES: MetricName = count("symphony_federation_moves", "Moves under way", Kind::Gauge);
const PROPOSED: MetricName = count(
    "symphony_federation_moves_proposed",
    "Moves that would divide the models more evenly and wait for an operator to begin them",
    Kind::Gauge,
);
const PLACED: MetricName =
    count("symphony_federation_moves_begun_total", "Moves that this replica began as leader", Kind::Counter);
const REFUSED: MetricName = count(
    "symphony_federation_moves_refused_total",
    "Moves that this replica asked for as leader and the group refused to begin",
    Kind::Counter,
);
const SILENT: MetricName = count(
    "symphony_federation_frontends_silent",
    "Frontends that may serve and do not say what clients ask for; nothing is moved for balance meanwhile",
    Kind::Gauge,
);
const ASKED: MetricName = count(
    "symphony_federation_cluster_calls_total",
    "Models that this replica asked clusters to load or unload",
    Kind::Counter,
);
const WATCHERS: MetricName =
    count("symphony_federation_watchers", "Processes that watch the federation here", Kind::Gauge);

/// Every metric of this crate.
pub const METRIC_NAMES: [MetricName; 13] =
    [LEADS, PLAN, CLUSTERS, LOST, MODELS, UNSERVED, MOVES, PROPOSED, PLACED, REFUSED, SILENT, ASKED, WATCHERS];

/// The metrics of one replica. Clones share their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) is_leader: Gauge,
    pub(crate) plan: Gauge,
    pub(crate) clusters: Gauge,
    pub(crate) clusters_lost: Gauge,
    pub(crate) models: Gauge,
    pub(crate) models_unserved: Gauge,
    pub(crate) moves: Gauge,
    pub(crate) moves_proposed: Gauge,
    pub(crate) moves_begun: Counter,
    pub(crate) moves_refused: Counter,
    pub(crate) frontends_silent: Gauge,
    pub(crate) cluster_calls: Counter,
    pub(crate) watchers: Gauge,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &Registry) {
        let gauges = [
            (&LEADS, &self.is_leader),
            (&PLAN, &self.plan),
            (&CLUSTERS, &self.clusters),
            (&LOST, &self.clusters_lost),
            (&MODELS, &self.models),
            (&UNSERVED, &self.models_unserved),
            (&MOVES, &self.moves),
            (&PROPOSED, &self.moves_proposed),
            (&SILENT, &self.frontends_silent),
            (&WATCHERS, &self.watchers),
        ];
        for (name, gauge) in gauges {
            registry.register(name, gauge.clone());
        }
        let counters = [(&PLACED, &self.moves_begun), (&REFUSED, &self.moves_refused), (&ASKED, &self.cluster_calls)];
        for (name, counter) in counters {
            registry.register(name, counter.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_keep_the_law_and_are_used() {
        assert_eq!(symphony_telemetry::check_names(&METRIC_NAMES, include_str!("metrics.rs")), Vec::<String>::new());
        let registry = Registry::new("test");
        Metrics::default().register(&registry);
        let text = registry.encode();
        for metric in METRIC_NAMES {
            assert!(text.contains(&format!("\n{} 0\n", metric.name)), "{} is not in\n{text}", metric.name);
        }
    }
}
