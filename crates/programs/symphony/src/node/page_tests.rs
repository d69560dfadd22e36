//! The console's script uses only fields that this page has.

use std::collections::BTreeSet;

use serde_json::json;
use symphony_protocol::view::{NodeView, OperationView};
use symphony_types::{NodeId, OperationId};

use super::*;
use crate::top::scene;

const CONSOLE: &str = include_str!("../../../../edges/telemetry/src/console.html");
/// Object names in the console's script, and where the page has these objects.
const OBJECTS: [(&str, &str); 8] = [
    ("view", ""),
    ("m", "/models/0"),
    ("s", "/subclusters/0"),
    ("n", "/nodes/0"),
    ("b", "/backends/0"),
    ("g", "/backends/0/gpus/0"),
    ("f", "/frontends/0"),
    ("event", "/events/0"),
];

/// The names after `object.` in the script; function calls are JavaScript's own methods.
fn fields(script: &str, object: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let dotted = format!("{object}.");
    let after = |(at, _): (usize, &str)| {
        let whole = !script[..at].ends_with(is_name) && !script[..at].ends_with('.');
        let rest = &script[at + dotted.len()..];
        let name: String = rest.chars().take_while(|&c| is_name(c)).collect();
        (whole && !rest[name.len()..].starts_with('(')).then_some(name)
    };
    script.match_indices(&dotted).filter_map(after).collect()
}

#[test]
fn every_field_that_the_console_reads_is_on_the_page() {
    let mut view = scene::view();
    view.nodes.insert(NodeId::new(1), NodeView::default());
    view.operations.push(OperationView {
        index: 1,
        id: OperationId::new(1),
        actor: "admin ann".into(),
        at_unix_ms: 0,
        what: "load m".into(),
        refusal: None,
    });
    let page = view_json(&view, "frontend", "f", &|_| json!({}));
    let script = CONSOLE.split_once("<script>").expect("the console has a script").1;

    for (object, place) in OBJECTS {
        let (read, said) = (fields(script, object), page.pointer(place).expect(place));
        assert!(!read.is_empty(), "the console has another name for {place}: this test would look at nothing");
        for field in read {
            assert!(said.get(&field).is_some(), "the console reads {object}.{field}: {said}");
        }
    }
}
