//! The metrics of the control plane.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use symphony_telemetry::{Kind, MetricName, Registry, Unit};

const fn count(name: &'static str, help: &'static str, kind: Kind) -> MetricName {
    MetricName { name, help, kind, unit: Unit::Count, labels: &[] }
}

const APPLIED: MetricName =
    count("symphony_control_applied_index", "Log index of the last command applied", Kind::Gauge);
const EPOCH: MetricName =
    count("symphony_control_epoch", "Version of the plan as this replica has applied it", Kind::Gauge);
const LEVEL: MetricName =
    count("symphony_control_level", "Level that the cluster writes by, as this replica has applied it", Kind::Gauge);
const LEADS: MetricName =
    count("symphony_control_is_leader", "1 while this replica leads the control group", Kind::Gauge);
const WATCHERS: MetricName = count("symphony_control_watchers", "Processes that watch the cluster here", Kind::Gauge);
const VIEW_BYTES: MetricName = MetricName {
    name: "symphony_control_view_bytes_total",
    help: "Views sent to those that watch, in bytes of their messages",
    kind: Kind::Counter,
    unit: Unit::Bytes,
    labels: &[],
};
const APPLIES: MetricName =
    count("symphony_control_commands_applied_total", "Commands applied, refused ones included", Kind::Counter);
const REFUSALS: MetricName =
    count("symphony_control_commands_refused_total", "Commands that the state refused", Kind::Counter);
const HEARTBEATS: MetricName =
    count("symphony_control_beats_received_total", "Heartbeats received from other replicas", Kind::Counter);
const LATE: MetricName = count(
    "symphony_control_detector_late_total",
    "Times the failure detector was paused and forgave all",
    Kind::Counter,
);
const DECLARED: MetricName = count(
    "symphony_control_nodes_declared_down_total",
    "Replicas this one declared down as Raft leader",
    Kind::Counter,
);
const REGISTRATIONS: MetricName =
    count("symphony_control_registrations_total", "Times this replica registered itself", Kind::Counter);

const NOT_APPLYING: MetricName = count(
    "symphony_control_replicas_not_applying",
    "Replicas that do not apply what was agreed, as the Raft leader sees it",
    Kind::Gauge,
);
const VOTERS: MetricName =
    count("symphony_control_voters", "Replicas that vote in the control group, as this one knows", Kind::Gauge);
const VOTERS_DOWN: MetricName =
    count("symphony_control_voters_down", "Of them, those that are declared down", Kind::Gauge);
const EPOCHS: MetricName =
    count("symphony_control_epochs_solved_total", "Times this replica looked for a better plan", Kind::Counter);
const EPOCHS_FAILED: MetricName = count(
    "symphony_control_epochs_failed_total",
    "Of them, those that found none that keeps the limits",
    Kind::Counter,
);
const RATE_IMBALANCE: MetricName = ratio(
    "symphony_control_plan_rate_imbalance_ratio",
    "Rates of the sub-clusters by the plan in force when the last epoch began: (largest - smallest) / average",
);
const MEMORY_IMBALANCE: MetricName =
    ratio("symphony_control_plan_memory_imbalance_ratio", "Static memory of the sub-clusters' models, likewise");

const fn ratio(name: &'static str, help: &'static str) -> MetricName {
    MetricName { name, help, kind: Kind::Gauge, unit: Unit::Ratio, labels: &[] }
}

/// Every metric of this crate.
pub const METRIC_NAMES: [MetricName; 19] = [
    APPLIED,
    EPOCH,
    LEVEL,
    LEADS,
    WATCHERS,
    VIEW_BYTES,
    APPLIES,
    REFUSALS,
    HEARTBEATS,
    LATE,
    DECLARED,
    REGISTRATIONS,
    NOT_APPLYING,
    VOTERS,
    VOTERS_DOWN,
    EPOCHS,
    EPOCHS_FAILED,
    RATE_IMBALANCE,
    MEMORY_IMBALANCE,
];

/// The metrics of one control plane; clones share their values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Log index of the last command applied.
    pub applied_index: Gauge,
    /// Version of the plan.
    pub epoch: Gauge,
    /// The level that the cluster writes by.
    pub level: Gauge,
    /// 1 while this replica leads the control group.
    pub is_leader: Gauge,
    /// Open watches.
    pub watchers: Gauge,
    /// Views sent to those that watch, in bytes of their messages.
    pub view_bytes: Counter,
    /// Commands applied, refused ones included.
    pub commands_applied: Counter,
    /// Commands that the state refused.
    pub commands_refused: Counter,
    /// Heartbeats received from other replicas.
    pub heartbeats_received: Counter,
    /// Times the failure detector was paused and discarded its suspicions.
    pub detector_late: Counter,
    /// Replicas that this one declared down.
    pub nodes_declared_down: Counter,
    /// Times this replica registered itself.
    pub registrations: Counter,
    /// Replicas that do not apply the log, while this one leads.
    pub replicas_not_applying: Gauge,
    /// Replicas that vote.
    pub voters: Gauge,
    /// Of them, those that are declared down.
    pub voters_down: Gauge,
    /// Times this replica looked for a better plan.
    pub epochs: Counter,
    /// Searches that found no better plan.
    pub epochs_failed: Counter,
    /// How uneven the rates of the sub-clusters were.
    pub rate_imbalance: Gauge<f64, AtomicU64>,
    /// How uneven the static memory of their models was.
    pub memory_imbalance: Gauge<f64, AtomicU64>,
}

impl Metrics {
    /// Adds them to the process's registry.
    ///
    /// # Panics
    /// If they are registered twice.
    pub fn register(&self, registry: &Registry) {
        registry.register(&APPLIED, self.applied_index.clone());
        registry.register(&EPOCH, self.epoch.clone());
        registry.register(&LEVEL, self.level.clone());
        registry.register(&LEADS, self.is_leader.clone());
        registry.register(&WATCHERS, self.watchers.clone());
        registry.register(&VIEW_BYTES, self.view_bytes.clone());
        registry.register(&APPLIES, self.commands_applied.clone());
        registry.register(&REFUSALS, self.commands_refused.clone());
        registry.register(&HEARTBEATS, self.heartbeats_received.clone());
        registry.register(&LATE, self.detector_late.clone());
        registry.register(&DECLARED, self.nodes_declared_down.clone());
        registry.register(&REGISTRATIONS, self.registrations.clone());
        registry.register(&NOT_APPLYING, self.replicas_not_applying.clone());
        registry.register(&VOTERS, self.voters.clone());
        registry.register(&VOTERS_DOWN, self.voters_down.clone());
        registry.register(&EPOCHS, self.epochs.clone());
        registry.register(&EPOCHS_FAILED, self.epochs_failed.clone());
        registry.register(&RATE_IMBALANCE, self.rate_imbalance.clone());
        registry.register(&MEMORY_IMBALANCE, self.memory_imbalance.clone());
    }
}

#[cfg(test)]
mod tests {
    use symphony_telemetry::check_names;

    use super::*;

    #[test]
    fn names_keep_the_law_and_are_all_scraped() {
        assert_eq!(check_names(&METRIC_NAMES, include_str!("metrics.rs")), Vec::<String>::new());
        let registry = Registry::new("test");
        Metrics::default().register(&registry);
        let text = registry.encode();
        for metric in METRIC_NAMES {
            let shown = [format!("\n{} 0\n", metric.name), format!("\n{} 0.0\n", metric.name)];
            assert!(shown.iter().any(|line| text.contains(line)), "{} is not in\n{text}", metric.name);
        }
    }
}
