//! The alert rules in deploy/prometheus name only existing metrics and labels.

use symphony_telemetry::{Kind, MetricName};

use super::{frames, security};

const RULES: &str = include_str!("../../../../../deploy/prometheus/symphony-alerts.yml");
/// Labels that Prometheus adds to every series.
const TARGET_LABELS: [&str; 2] = ["job", "instance"];

fn every_name() -> Vec<MetricName> {
    let lists: [&[MetricName]; 11] = [
        &symphony_telemetry::names::ALL,
        &frames::METRIC_NAMES,
        &[security::EXPIRES],
        &symphony_frontend::names::ALL,
        &symphony_scheduler_runtime::METRIC_NAMES,
        &symphony_control_plane::METRIC_NAMES,
        &symphony_control_plane::SCALING_METRIC_NAMES,
        &symphony_federation::METRIC_NAMES,
        &symphony_backend::METRIC_NAMES,
        &symphony_backend::MODEL_METRIC_NAMES,
        &symphony_backend::PAYLOAD_METRIC_NAMES,
    ];
    lists.concat()
}

/// Metrics and labels in the rules that do not exist.
fn problems(rules: &str, names: &[MetricName]) -> Vec<String> {
    let text: String =
        rules.lines().filter(|line| !line.trim_start().starts_with('#')).map(|l| format!("{l}\n")).collect();
    text.split("- alert:").skip(1).flat_map(|rule| problems_of_rule(rule, names)).collect()
}

fn problems_of_rule(rule: &str, names: &[MetricName]) -> Vec<String> {
    let alert = rule.split_whitespace().next().unwrap_or_default();
    let (mut problems, mut labels) = (Vec::new(), TARGET_LABELS.to_vec());
    let mut used = 0;
    for (at, word) in words(rule).filter(|(_, word)| word.starts_with("symphony_")) {
        let Some(metric) = names.iter().find(|metric| is_series_of(word, metric)) else {
            problems.push(format!("{alert}: no metric {word}"));
            continue;
        };
        used += 1;
        labels.extend(metric.labels);
        let selector = rule[at + word.len()..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
        for matcher in selector.map_or("", |(inside, _)| inside).split(',') {
            let label = matcher.split(['=', '!']).next().unwrap_or_default().trim();
            if !label.is_empty() && !metric.labels.contains(&label) && !TARGET_LABELS.contains(&label) {
                problems.push(format!("{alert}: {word} has no label {label}"));
            }
        }
    }
    if used == 0 {
        problems.push(format!("{alert}: no metric at all"));
    }
    let grouped = ["by (", "on ("].into_iter().flat_map(|word| rule.split(word).skip(1));
    let grouped = grouped.filter_map(|rest| rest.split_once(')')).flat_map(|(inside, _)| inside.split(','));
    let shown = rule.split("$labels.").skip(1).map(|rest| words(rest).next().map_or("", |(_, word)| word));
    for label in grouped.map(str::trim).chain(shown) {
        if !labels.contains(&label) {
            problems.push(format!("{alert}: none of its metrics has the label {label}"));
        }
    }
    problems
}

/// Identifiers and words, with their positions.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(move |c| !in_word(c))
        .filter(|word| !word.is_empty())
        .map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
}

fn is_series_of(word: &str, metric: &MetricName) -> bool {
    let part = word.strip_prefix(metric.name);
    part == Some("") || metric.kind == Kind::Histogram && matches!(part, Some("_bucket" | "_sum" | "_count"))
}

#[test]
fn every_metric_and_label_in_the_alert_rules_exists() {
    assert_eq!(problems(RULES, &every_name()), Vec::<String>::new());
    assert!(RULES.matches("- alert:").count() >= 7);
}

#[test]
fn planted_mistakes_in_rules_are_found() {
    let rule =
        |expr: &str, shown: &str| format!("- alert: A\n  expr: {expr}\n  annotations: {{ summary: '{shown}' }}\n");
    let found = |expr: &str, shown: &str| problems(&rule(expr, shown), &every_name());
    assert_eq!(
        found("symphony_frontend_request_duration_seconds_bucket{model='m', job='f'} > 0", "$labels.model"),
        [""; 0]
    );
    assert_eq!(found("symphony_frame_link > 0", ""), ["A: no metric symphony_frame_link", "A: no metric at all"]);
    assert_eq!(found("symphony_frame_links_bucket > 0", "")[0], "A: no metric symphony_frame_links_bucket");
    assert_eq!(found("symphony_frame_links{carrier!='tcp'} > 0", ""), ["A: symphony_frame_links has no label carrier"]);
    let by = "sum by (instance, model) (symphony_frame_links) > 0";
    assert_eq!(found(by, ""), ["A: none of its metrics has the label model"]);
    assert_eq!(
        found("symphony_frame_links > 0", "$labels.subcluster"),
        ["A: none of its metrics has the label subcluster"]
    );
}
