//! The scripts of the console use only fields that the answers have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use symphony_protocol::view::OperationView;
use symphony_types::OperationId;

use super::scene::{self, NOW_MS};
use super::{cluster, model, timeline};
use crate::inspect::sample::Sample;
use crate::top::Window;

const SCRIPTS: [&str; 2] = [
    include_str!("../../../../edges/telemetry/src/console/views.js"),
    include_str!("../../../../edges/telemetry/src/console/troubles.js"),
];

/// The names after `object.` in a script; function calls are JavaScript's own methods.
fn fields(script: &str, object: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let dotted = format!("{object}.");
    let after = |(at, _): (usize, &str)| {
        let whole = !script[..at].ends_with(is_name) && !script[..at].ends_with('.');
        let rest = &script[at + dotted.len()..];
        let name: String = rest.chars().take_while(|&c| is_name(c)).collect();
        (whole && !name.is_empty() && !rest[name.len()..].starts_with('(')).then_some(name)
    };
    script.match_indices(&dotted).filter_map(after).collect()
}

/// The names of all fields of these objects, or of those in these lists.
fn fields_of(of: &[&Value]) -> BTreeSet<String> {
    let objects = of.iter().flat_map(|value| match value {
        Value::Array(values) => values.iter().collect(),
        value => vec![*value],
    });
    objects.filter_map(Value::as_object).flat_map(|object| object.keys().cloned()).collect()
}

#[test]
fn every_field_that_the_console_reads_is_answered() {
    let mut view = scene::view();
    view.operations.push(OperationView {
        index: 1,
        id: OperationId::new(1),
        actor: "operator/ann".into(),
        at_unix_ms: NOW_MS,
        what: "load m".into(),
        refusal: None,
    });
    let load = Window::new(Duration::from_secs(1)).take(Sample::of_view(Duration::ZERO, view.clone())).json();
    let history = scene::history(30);
    let histories = [("front".to_owned(), history.overview(NOW_MS))].into();
    let cluster = cluster::json(&view, &load, histories, &scene::me(), &[], NOW_MS);
    let model = model::json(&view, "m", &history.of_model("m").series(NOW_MS), &[], NOW_MS);
    let planned = json!({ "start_ms": 0.0, "execution_ms": 5.0 });
    let batch = json!({ "number": 1, "items": 1, "gpu": { "name": "g4 of b" }, "planned": planned, "actual": null });
    let explained = json!({ "model": "m", "outcome": "in_time", "decided_ago_ms": 9.0, "batch": batch });
    let gpus = timeline::json(&load, &[explained.to_string()], &[], NOW_MS);

    let objects = BTreeMap::from([
        ("cluster", fields_of(&[&cluster])),
        ("model", fields_of(&[&cluster["models"]])),
        ("now", fields_of(&[&cluster["models"][0]["now"]])),
        ("model.now", fields_of(&[&cluster["models"][0]["now"]])),
        ("process", fields_of(&[&cluster["processes"]])),
        ("subcluster", fields_of(&[&cluster["subclusters"]])),
        ("event", fields_of(&[&cluster["events"]])),
        ("gpu", fields_of(&[&cluster["gpus"], &gpus["gpus"]])),
        ("detail", fields_of(&[&model, &gpus])),
        ("slot", fields_of(&[&model["slots"]])),
        ("example", fields_of(&[&model["slowest"]])),
        ("batch", fields_of(&[&gpus["batches"]])),
    ]);
    for (object, answered) in objects {
        let read: BTreeSet<_> = SCRIPTS.iter().flat_map(|script| fields(script, object)).collect();
        assert!(!read.is_empty(), "the console has another name for {object}: this test would look at nothing");
        let missing: Vec<_> = read.difference(&answered).collect();
        assert!(missing.is_empty(), "the console reads {object}.{missing:?}, and is told {answered:?}");
    }
}
