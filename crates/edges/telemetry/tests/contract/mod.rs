//! What the metrics of every crate keep, and the smallest ones that do.

mod skeleton;

use symphony_telemetry::{MetricName, Registry, check_names};

/// The names in the text of a file keep the law, and what was registered is scraped under them in every format.
#[track_caller]
fn keep_the_law(names: &[MetricName], source: &str, registry: &Registry) {
    assert_eq!(check_names(names, source), Vec::<String>::new());
    for text in [registry.encode(), registry.encode_plain()] {
        for metric in names {
            let value = text.lines().find(|line| line.starts_with(metric.name));
            let labelled = |line: &str| metric.labels.iter().all(|label| line.contains(&format!("{label}=\"")));
            assert!(value.is_some_and(labelled), "{} is not in\n{text}", metric.name);
        }
    }
    assert!(registry.encode_protobuf().is_ok());
}

#[test]
fn the_skeleton_keeps_the_law_and_is_scraped() {
    let (registry, metrics) = (Registry::new("test"), skeleton::Metrics::default());
    metrics.register(&registry);
    registry.collect(skeleton::WaitingCollector([("digits".to_owned(), 0.5)].into()));
    metrics.batches.inc_by(2);
    keep_the_law(&skeleton::METRIC_NAMES, include_str!("skeleton.rs"), &registry);
    let text = registry.encode();
    assert!(text.contains("\nsymphony_skeleton_batches_total 2\n"), "{text}");
    assert!(text.contains("\nsymphony_skeleton_waiting_seconds{model=\"digits\"} 0.5\n"), "{text}");
}
