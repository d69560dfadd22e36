//! What happened lately: what operators asked for, and what changed, in the order of the log.

use serde_json::{Value, json};
use symphony_protocol::view::{OperationView, View};
use time::OffsetDateTime;

use super::get::Shown;

/// As a table and as JSON.
pub(crate) fn show(view: &View) -> Shown {
    let cells = |line: &Line<'_>| match line {
        Line::Event(index, what) => {
            vec![index.to_string(), String::new(), String::new(), (*what).to_owned(), String::new()]
        }
        Line::Operation(operation) => {
            let what = match &operation.refusal {
                Some(refusal) => format!("{}: refused: {refusal}", operation.what),
                None => operation.what.clone(),
            };
            let (time, id) = (utc(operation.at_unix_ms), operation.id.to_string());
            vec![operation.index.to_string(), time, operation.actor.clone(), what, id]
        }
    };
    let rows = lines(view).iter().map(cells).collect();
    (&["LOG INDEX", "TIME", "ACTOR", "WHAT", "OPERATION"], rows, json(view))
}

/// As JSON. What operators asked for has an `actor`, and all that is told of it.
pub(crate) fn json(view: &View) -> Value {
    let value = |line: Line<'_>| match line {
        Line::Event(index, what) => json!({ "index": index, "what": what }),
        Line::Operation(OperationView { index, id, actor, at_unix_ms, what, refusal }) => {
            let outcome = if refusal.is_none() { "done" } else { "refused" };
            json!({ "index": index, "what": what, "actor": actor, "at_unix_ms": at_unix_ms, "operation": id.to_string(),
                    "outcome": outcome, "refusal": refusal })
        }
    };
    lines(view).into_iter().map(value).collect()
}

enum Line<'a> {
    Event(u64, &'a str),
    Operation(&'a OperationView),
}

/// What was asked for stands before what it changed, which has the same index.
fn lines(view: &View) -> Vec<Line<'_>> {
    let operations = view.operations.iter().map(Line::Operation);
    let mut lines: Vec<_> =
        operations.chain(view.events.iter().map(|(index, what)| Line::Event(*index, what))).collect();
    lines.sort_by_key(|line| match line {
        Line::Event(index, _) => *index,
        Line::Operation(operation) => operation.index,
    });
    lines
}

/// A wall clock's time to the second, in UTC.
fn utc(unix_ms: u64) -> String {
    let at = i64::try_from(unix_ms / 1000).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let Some(at) = at else { return format!("{unix_ms} ms") };
    let (month, (hour, minute, second)) = (u8::from(at.month()), at.to_hms());
    format!("{:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", at.year(), at.day())
}

#[cfg(test)]
mod tests {
    use symphony_types::OperationId;

    use super::*;

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
            events: vec![(3, "scheduler n1 is up".into()), (7, "model m (m1) unloaded".into())],
            operations: vec![operation(7, None), operation(8, Some("no model is named `m`"))],
            ..View::default()
        };
        let (header, rows, json) = show(&view);
        assert!(rows.iter().all(|row| row.len() == header.len()));
        let column = |column: usize| rows.iter().map(|row| row[column].as_str()).collect::<Vec<_>>();
        assert_eq!(column(0), ["3", "7", "7", "8"]);
        assert_eq!(column(2), ["", "operator/ann", "", "operator/ann"]);
        assert_eq!(column(3)[2..], ["model m (m1) unloaded", "unload model m: refused: no model is named `m`"]);
        assert_eq!(rows[1][1], "2023-11-14T22:13:20Z");
        assert_eq!(json[0], json!({ "index": 3, "what": "scheduler n1 is up" }));
        assert_eq!((&json[1]["outcome"], &json[1]["refusal"]), (&"done".into(), &Value::Null));
        assert_eq!((&json[3]["outcome"], &json[3]["refusal"]), (&"refused".into(), &"no model is named `m`".into()));
        assert_eq!(json[3]["operation"], "000000000000000000000000000000ab");
    }

    #[test]
    fn a_time_that_is_none_is_shown_as_it_came() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(u64::MAX), format!("{} ms", u64::MAX));
    }
}
