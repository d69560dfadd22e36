//! Recent events: operators' commands and changes, in log order.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use symphony_protocol::federation::FederationView;
use symphony_protocol::view::{EventView, OperationView, View};
use time::OffsetDateTime;

use super::Shown;

/// Events of a cluster, as a table and as JSON.
pub(crate) fn show(view: &View) -> Shown {
    shown(&view.events, &view.operations, &Names::of(view))
}

/// Events of a federation, whose log uses names.
pub(crate) fn of_federation(view: &FederationView) -> Shown {
    shown(&view.events, &view.operations, &Names(BTreeMap::new()))
}

/// Events of a cluster as JSON. Operators' commands have an `actor` and further fields.
pub(crate) fn json(view: &View) -> Value {
    to_json(&lines(&view.events, &view.operations))
}

/// The events in which one of these names stands as a word: as lines for people, and as JSON.
pub(crate) fn about(view: &View, names: &[&str]) -> (Vec<String>, Value) {
    let mut lines = lines(&view.events, &view.operations);
    lines.retain(|line| {
        let what = match line {
            Line::Event(event) => &event.what,
            Line::Operation(operation) => &operation.what,
        };
        let mut words = what.split([' ', ',', ':', ';', '(', ')', '`']);
        words.any(|word| names.contains(&word))
    });
    let known = Names::of(view);
    let text = |line: &Line<'_>| match line {
        Line::Event(event) => format!("{}  {}", utc(event.at_unix_ms), known.put_into(&event.what)),
        Line::Operation(operation) => {
            let refused = operation.refusal.as_ref().map(|why| format!(": refused: {why}")).unwrap_or_default();
            let (time, what) = (utc(operation.at_unix_ms), known.put_into(&operation.what));
            format!("{time}  {} asked: {what}{refused}", operation.actor)
        }
    };
    (lines.iter().map(text).collect(), to_json(&lines))
}

/// The same, with the names of what the log's sentences call by id.
pub(crate) fn named_json(view: &View) -> Value {
    let (names, mut json) = (Names::of(view), json(view));
    for line in json.as_array_mut().into_iter().flatten() {
        if let Some(what) = line["what"].as_str() {
            line["what"] = names.put_into(what).into();
        }
    }
    json
}

fn shown(events: &[EventView], operations: &[OperationView], names: &Names<'_>) -> Shown {
    let lines = lines(events, operations);
    let cells = |line: &Line<'_>| match line {
        Line::Event(EventView { index, at_unix_ms, what }) => {
            vec![index.to_string(), utc(*at_unix_ms), String::new(), names.put_into(what), String::new()]
        }
        Line::Operation(operation) => {
            let what = match &operation.refusal {
                Some(refusal) => format!("{}: refused: {refusal}", operation.what),
                None => operation.what.clone(),
            };
            let (time, id) = (utc(operation.at_unix_ms), operation.id.to_string());
            vec![operation.index.to_string(), time, operation.actor.clone(), names.put_into(&what), id]
        }
    };
    let rows = lines.iter().map(cells).collect();
    (&["LOG INDEX", "TIME", "ACTOR", "WHAT", "OPERATION"], rows, to_json(&lines))
}

fn to_json(lines: &[Line<'_>]) -> Value {
    let value = |line: &Line<'_>| match line {
        Line::Event(EventView { index, at_unix_ms, what }) => {
            json!({ "index": index, "at_unix_ms": at_unix_ms, "what": what })
        }
        Line::Operation(OperationView { index, id, actor, at_unix_ms, what, refusal }) => {
            let outcome = if refusal.is_none() { "done" } else { "refused" };
            json!({ "index": index, "what": what, "actor": actor, "at_unix_ms": at_unix_ms, "operation": id.to_string(),
                    "outcome": outcome, "refusal": refusal })
        }
    };
    lines.iter().map(value).collect()
}

enum Line<'a> {
    Event(&'a EventView),
    Operation(&'a OperationView),
}

/// A command precedes the changes that it made, which have the same index.
fn lines<'a>(events: &'a [EventView], operations: &'a [OperationView]) -> Vec<Line<'a>> {
    let operations = operations.iter().map(Line::Operation);
    let mut lines: Vec<_> = operations.chain(events.iter().map(Line::Event)).collect();
    lines.sort_by_key(|line| match line {
        Line::Event(event) => event.index,
        Line::Operation(operation) => operation.index,
    });
    lines
}

/// Adds names to the ids in the log's sentences: the log stores ids, since names are reused.
struct Names<'a>(BTreeMap<String, &'a str>);

impl<'a> Names<'a> {
    fn of(view: &'a View) -> Self {
        let subclusters = view.subclusters.iter().map(|(id, subcluster)| (id.to_string(), subcluster.name.as_str()));
        let models = view.models.iter().map(|(id, model)| (id.to_string(), model.spec.name.as_str()));
        let backends = view.backends.iter().map(|(id, backend)| (id.to_string(), backend.name.as_str()));
        let frontends = view.frontends.iter().map(|(id, frontend)| (id.to_string(), frontend.name.as_str()));
        let mut names: BTreeMap<_, _> = subclusters.chain(models).chain(backends).chain(frontends).collect();
        // If a process is named like the id of another one, a sentence may mean either.
        for name in names.values().map(|name| (*name).to_owned()).collect::<Vec<_>>() {
            names.remove(&name);
        }
        Self(names)
    }

    /// `b2` becomes `pool-0 (b2)` if it still exists. An id in parentheses already follows its name.
    fn put_into(&self, sentence: &str) -> String {
        let words = sentence.split(' ').map(|word| {
            let id = word.trim_end_matches([',', ':', ';']);
            match self.0.get(id) {
                Some(name) => format!("{name} ({id}){}", &word[id.len()..]),
                None => word.to_owned(),
            }
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Wall-clock time to the second, in UTC; nothing if it is unknown.
pub(crate) fn utc(unix_ms: u64) -> String {
    if unix_ms == 0 {
        return String::new();
    }
    let at = i64::try_from(unix_ms / 1000).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let Some(at) = at else { return format!("{unix_ms} ms") };
    let (month, (hour, minute, second)) = (u8::from(at.month()), at.to_hms());
    format!("{:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", at.year(), at.day())
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::{BackendView, SubclusterView};
    use symphony_types::{BackendId, OperationId, SubclusterId};

    use super::*;

    fn event(index: u64, what: &str) -> EventView {
        EventView { index, at_unix_ms: 1_700_000_060_000, what: what.into() }
    }

    #[test]
    fn operations_stand_before_what_they_changed() {
        let operation = |index, refusal: Option<&str>| OperationView {
            index,
            id: OperationId::new(171),
            actor: "operator/ann".into(),
            at_unix_ms: 1_700_000_000_999,
            what: "unload model m".into(),
            refusal: refusal.map(str::to_owned),
        };
        let view = View {
            events: vec![event(3, "scheduler n1 is up"), event(7, "model m (m1) unloaded")],
            operations: vec![operation(7, None), operation(8, Some("no model is named `m`"))],
            ..View::default()
        };
        let (header, rows, json) = show(&view);
        assert!(rows.iter().all(|row| row.len() == header.len()));
        let column = |column: usize| rows.iter().map(|row| row[column].as_str()).collect::<Vec<_>>();
        assert_eq!(column(0), ["3", "7", "7", "8"]);
        assert_eq!(column(2), ["", "operator/ann", "", "operator/ann"]);
        assert_eq!(column(3)[2..], ["model m (m1) unloaded", "unload model m: refused: no model is named `m`"]);
        assert_eq!((rows[0][1].as_str(), rows[1][1].as_str()), ("2023-11-14T22:14:20Z", "2023-11-14T22:13:20Z"));
        assert_eq!(json[0], json!({ "index": 3, "at_unix_ms": 1_700_000_060_000_u64, "what": "scheduler n1 is up" }));
        assert_eq!((&json[1]["outcome"], &json[1]["refusal"]), (&"done".into(), &Value::Null));
        assert_eq!((&json[3]["outcome"], &json[3]["refusal"]), (&"refused".into(), &"no model is named `m`".into()));
        assert_eq!(json[3]["operation"], "000000000000000000000000000000ab");
    }

    #[test]
    fn what_sentences_call_by_id_is_named_unless_that_could_be_wrong() {
        let subcluster = |name: &str| SubclusterView { name: name.into(), ..SubclusterView::default() };
        let backend = BackendView { name: "pool-0".into(), ..BackendView::default() };
        let view = View {
            subclusters: [(SubclusterId::new(1), subcluster("pool")), (SubclusterId::new(2), subcluster("b7"))].into(),
            backends: [(BackendId::new(3), backend.clone()), (BackendId::new(7), backend)].into(),
            events: vec![
                event(1, "model m (m1) is served by s1 instead of s9"),
                event(2, "model m failed on b3: no file"),
                event(3, "sub-cluster b7 created"),
            ],
            ..View::default()
        };
        let (_, rows, json) = show(&view);
        assert_eq!(rows[0][3], "model m (m1) is served by pool (s1) instead of s9");
        assert_eq!(rows[1][3], "model m failed on pool-0 (b3): no file");
        assert_eq!(rows[2][3], "sub-cluster b7 created", "that is its name");
        assert_eq!(json[1]["what"], "model m failed on b3: no file", "programs are told what the log has");
        let json = named_json(&view);
        assert_eq!(
            (&json[1]["what"], &json[1]["at_unix_ms"]),
            (&rows[1][3].as_str().into(), &1_700_000_060_000_u64.into())
        );
    }

    #[test]
    fn a_time_that_is_unknown_is_not_shown_and_one_that_is_none_as_it_came() {
        assert_eq!(utc(0), "");
        assert_eq!(utc(u64::MAX), format!("{} ms", u64::MAX));
    }
}
