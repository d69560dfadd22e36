//! The alert rules in deploy/prometheus and the dashboards in deploy/grafana name metrics and labels that there are,
//! each alert fires when its fault is made, and docs/reference/metrics.md names every metric.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use symphony_frontend::oip::Fault;
use symphony_telemetry::{Kind, MetricName};
use symphony_testkit::promtool;
use symphony_types::{DropReason, FailReason, Outcome};

use super::{certificates, frames};

const RULES: &str = include_str!("../../../../../deploy/prometheus/symphony-alerts.yml");
const RULE_TESTS: &str = include_str!("../../../../../deploy/prometheus/symphony-alerts-test.yml");
const PAGE: &str = include_str!("../../../../../docs/reference/metrics.md");
/// Labels that Prometheus gives to every series.
const TARGET_LABELS: [&str; 2] = ["job", "instance"];

fn every_name() -> Vec<MetricName> {
    let lists: [&[MetricName]; 12] = [
        &symphony_telemetry::names::ALL,
        &frames::METRIC_NAMES,
        &[certificates::EXPIRES],
        &symphony_frontend::metrics::ALL,
        &symphony_scheduler_runtime::METRIC_NAMES,
        &symphony_control_plane::METRIC_NAMES,
        &symphony_control_plane::SCALING_METRIC_NAMES,
        &symphony_federation::METRIC_NAMES,
        &symphony_backend::METRIC_NAMES,
        &symphony_backend::MODEL_METRIC_NAMES,
        &symphony_backend::GPU_METRIC_NAMES,
        &symphony_backend::PAYLOAD_METRIC_NAMES,
    ];
    lists.concat()
}

/// Series that Prometheus makes of each target by itself.
const TARGET_SERIES: [&str; 1] = ["up"];

/// Without lines of comments.
fn without_comments(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with('#')).map(|l| format!("{l}\n")).collect()
}

/// Each rule with its name, alerts and what is recorded for them.
fn rules_of(text: &str) -> Vec<&str> {
    let mut starts: Vec<_> = ["- alert:", "- record:"]
        .iter()
        .flat_map(|word| text.match_indices(word))
        .map(|(at, word)| at + word.len())
        .collect();
    starts.sort_unstable();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts.iter().zip(ends).map(|(&start, end)| &text[start..end]).collect()
}

/// The seconds of a line such as `for: 15s`.
fn seconds(text: &str, key: &str) -> u64 {
    let value = text.lines().find_map(|line| line.trim().strip_prefix(key)).unwrap();
    value.trim().strip_suffix('s').unwrap().parse().unwrap()
}

#[test]
fn an_outage_of_a_model_alerts_within_half_a_minute() {
    let named = |rule: &&str| rule.trim_start().starts_with("SymphonyModelUnready\n");
    let rule = rules_of(RULES).into_iter().find(named).unwrap();
    let config = include_str!("../../../../../deploy/prometheus/prometheus.yml");
    // A scrape sees it, the next evaluation begins to wait, and the first one after the wait fires.
    let evaluated = seconds(config, "evaluation_interval:");
    assert!(seconds(config, "scrape_interval:") + 2 * evaluated + seconds(rule, "for:") <= 30);
}

/// Metrics and labels of the rules that do not exist.
fn problems(rules: &str, names: &[MetricName]) -> Vec<String> {
    let text = without_comments(rules);
    let rules = rules_of(&text);
    let recorded: Vec<_> =
        rules.iter().filter_map(|rule| rule.split_whitespace().next()).filter(|n| n.contains(':')).collect();
    rules.iter().flat_map(|rule| problems_of(rule, names, &recorded)).collect()
}

/// The same of one rule, or of the expressions of one panel, which begins with its name.
fn problems_of(rule: &str, names: &[MetricName], recorded: &[&str]) -> Vec<String> {
    let alert = rule.split_whitespace().next().unwrap_or_default();
    let (mut problems, mut labels) = (Vec::new(), TARGET_LABELS.to_vec());
    let mut used = 0;
    for (at, word) in words(rule) {
        if TARGET_SERIES.contains(&word) && rule[at + word.len()..].starts_with('{') || recorded.contains(&word) {
            used += 1;
            // What is recorded here is recorded by model.
            labels.push("model");
        }
        if !word.starts_with("symphony_") {
            continue;
        }
        let Some(metric) = names.iter().find(|metric| is_series_of(word, metric)) else {
            problems.push(format!("{alert}: no metric {word}"));
            continue;
        };
        used += 1;
        labels.extend(metric.labels);
        if metric.kind == Kind::Histogram {
            labels.push("le");
        }
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
    for label in grouped.chain(shown).map(|label| label.trim().trim_end_matches(':')) {
        if !labels.contains(&label) {
            problems.push(format!("{alert}: none of its metrics has the label {label}"));
        }
    }
    problems
}

/// Names and words, with where they begin; a colon is part of the names of recorded series.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
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
    assert!(RULES.matches("- alert:").count() >= 22);
}

/// The values that the expressions of a text compare a label with, each alternative separately.
fn values_of<'a>(text: &'a str, label: &str) -> Vec<&'a str> {
    let quoted = |rest: &'a str| {
        let value = ["=~\"", "!~\"", "!=\"", "=\""].into_iter().find_map(|sign| rest.strip_prefix(sign))?;
        value.split_once('"').map(|(value, _)| value)
    };
    text.split(label).skip(1).filter_map(quoted).flat_map(|value| value.split('|')).collect()
}

#[test]
fn the_alert_rules_ask_for_faults_and_outcomes_that_there_are() {
    let rules = without_comments(RULES);
    let faults = values_of(&rules, "fault");
    assert!(!faults.is_empty());
    for fault in faults {
        assert!(Fault::ALL.iter().any(|known| known.label() == fault), "no fault {fault}");
    }
    let (dropped, failed) = (Outcome::Dropped(DropReason::Shed), Outcome::Failed(FailReason::NoGpu));
    let outcomes = [Outcome::InTime, Outcome::Late, dropped, failed, Outcome::Cancelled].map(Outcome::label);
    for outcome in values_of(&rules, "outcome") {
        assert!(outcomes.contains(&outcome), "no outcome {outcome}");
    }
    // Rules that list reasons go wrong when one is renamed or added: whose fault it is, is stated where it is defined.
    assert_eq!(values_of(&rules, "reason"), [""; 0]);
    assert_eq!(values_of("x{reason!~\"a|b\", reason=\"c\"}", "reason"), ["a", "b", "c"]);
}

#[test]
fn every_alert_is_made_to_fire_and_is_on_the_page() {
    for alert in RULES.split("- alert:").skip(1).filter_map(|rule| rule.split_whitespace().next()) {
        let mut tests =
            RULE_TESTS.split("alertname: ").skip(1).filter(|test| test.split_whitespace().next() == Some(alert));
        assert!(
            tests.any(|test| test.contains("exp_labels:") && !test.contains("exp_alerts: []")),
            "{alert} never fires"
        );
        assert!(PAGE.contains(&format!("`{alert}`")), "{alert} is not on the page");
    }
}

/// Runs promtool on a file of deploy/prometheus; all that it prints.
fn judged(promtool: &Path, args: [&str; 3]) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../deploy/prometheus");
    let done = Command::new(promtool).args(args).current_dir(folder).output().unwrap();
    let output = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{args:?}: {output}");
    output
}

#[test]
fn prometheus_takes_the_rules_and_each_fires_when_its_fault_is_made() {
    let Some(promtool) = promtool() else { return };
    judged(&promtool, ["check", "config", "prometheus.yml"]);
    judged(&promtool, ["check", "rules", "symphony-alerts.yml"]);
    judged(&promtool, ["test", "rules", "symphony-alerts-test.yml"]);
}

/// A panel as it stands in a dashboard: its title and its expressions.
fn panels(dashboard: &str) -> Vec<(String, Vec<String>)> {
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let exprs = |panel: &Value| {
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(|target| text(&target["expr"])).collect::<Vec<_>>()
    };
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    panels.filter(|panel| panel["type"] != "row").map(|panel| (text(&panel["title"]), exprs(panel))).collect()
}

const DASHBOARDS: [(&str, &str); 3] = [
    ("fleet", include_str!("../../../../../deploy/grafana/symphony-fleet.json")),
    ("model", include_str!("../../../../../deploy/grafana/symphony-model.json")),
    ("take-over", include_str!("../../../../../deploy/grafana/symphony-take-over.json")),
];

#[test]
fn every_metric_and_label_in_the_dashboards_exists() {
    let names = every_name();
    for (dashboard, json) in DASHBOARDS {
        let panels = panels(json);
        assert!(panels.len() >= 6, "{dashboard} has {} panels", panels.len());
        for (title, exprs) in panels {
            assert!(!exprs.is_empty(), "{dashboard}: {title} shows nothing");
            // The first word stands for the panel in messages.
            let text = format!("{} {}", title.replace(' ', "-"), exprs.join("\n"));
            assert_eq!(problems_of(&text, &names, &[]), [""; 0], "{dashboard}");
        }
    }
}

#[test]
fn what_matters_is_in_some_panel() {
    let shown = DASHBOARDS.iter().flat_map(|(_, json)| panels(json)).flat_map(|(_, exprs)| exprs);
    let shown = shown.collect::<Vec<_>>().join("\n");
    let shown: HashSet<_> = words(&shown).map(|(_, word)| word.to_owned()).collect();
    let (_, first) = PAGE.split_once("## Watch these first").unwrap();
    let (first, _) = first.split_once("## ").unwrap();
    // The metrics that the documentation names, and those that alerts use.
    let rules = without_comments(RULES);
    let wanted = words(first).chain(words(&rules)).map(|(_, word)| word).filter(|word| word.starts_with("symphony_"));
    // Not curves but facts of one moment, which their alerts say in words.
    let facts = [
        "symphony_certificate_expires_timestamp_seconds",
        "symphony_frontend_tenants_file_ok",
        "symphony_backend_executor_info",
    ];
    let missing: HashSet<_> = wanted.filter(|word| !shown.contains(*word) && !facts.contains(word)).collect();
    assert!(missing.is_empty(), "in no panel: {missing:?}");
}

/// Prometheus reads each expression, with values for what Grafana fills in.
#[test]
fn prometheus_takes_the_expressions_of_the_dashboards() {
    let Some(promtool) = promtool() else { return };
    let exprs = DASHBOARDS.iter().flat_map(|(_, json)| panels(json)).flat_map(|(_, exprs)| exprs);
    let record = |expr: String| {
        let expr = expr.replace("$__rate_interval", "1m").replace("$__range", "1h");
        json!({ "record": "panel", "expr": expr })
    };
    let rules: Vec<_> = exprs.map(record).collect();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.yml");
    // JSON is YAML.
    std::fs::write(&file, json!({ "groups": [{ "name": "panels", "rules": rules }] }).to_string()).unwrap();
    let done = Command::new(promtool).args(["check", "rules", "--lint=none"]).arg(&file).output().unwrap();
    assert!(
        done.status.success(),
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Metrics that the page does not name.
fn undocumented<'a>(page: &str, names: &'a [MetricName]) -> Vec<&'a str> {
    let named: HashSet<_> = words(page).map(|(_, word)| word.trim_end_matches(':')).collect();
    names.iter().map(|metric| metric.name).filter(|name| !named.contains(name)).collect()
}

#[test]
fn every_metric_is_on_the_page_of_metrics() {
    let names = every_name();
    assert_eq!(undocumented(PAGE, &names), [""; 0]);
    // A longer name does not stand for a shorter one.
    assert_eq!(undocumented("`symphony_frame_links_refused`", &[names[0], frames::METRIC_NAMES[0]]).len(), 2);
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
    assert_eq!(found("max(symphony:bad:ratio_rate5m) > 0", ""), ["A: no metric at all"], "recorded nowhere");
    let by = "sum by (instance, model) (symphony_frame_links) > 0";
    assert_eq!(found(by, ""), ["A: none of its metrics has the label model"]);
    assert_eq!(
        found("symphony_frame_links > 0", "$labels.subcluster"),
        ["A: none of its metrics has the label subcluster"]
    );
}
