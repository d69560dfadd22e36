//! The spans of a request: its whole way, and the steps of it one after the other.
//!
//! ```text
//! infer   ├──────────────────────────────────────────────────────────────────┤
//!         decode ├ queue ├ transfer ├ window ├ execution ─ link ▶ batch ├ reply
//! ```
//!
//! A request for a pipeline has a span `stage` for each stage request instead, which has the steps from `queue` on, and
//! before them `crop` if its input is a region of a picture.
//!
//! Times at the backend are counted back from when the result came, as if it had taken no time: `reply` is that much
//! too long, and what is before it too late.

use std::time::Instant;

use symphony_telemetry::{FinishedSpan, SpanIds, Traces};

use super::request_record::{RecordKind, RequestRecord};
use super::{RequestSpan, batch_spans};

pub(super) fn of(record: &RequestRecord<'_>, span: RequestSpan) -> Vec<FinishedSpan> {
    let RequestSpan { context, parent } = span;
    let whole = SpanIds { trace: context.trace, span: context.span };
    let is_stage = matches!(record.kind, RecordKind::Stage(_));
    let failed = matches!(record.outcome, "dropped" | "failed" | "refused");
    let mut spans = vec![FinishedSpan {
        ids: whole,
        parent,
        name: if is_stage { "stage" } else { "infer" },
        serves: !is_stage,
        start: record.wall(record.arrived),
        end: record.wall(record.ended),
        attributes: attributes(record),
        link: None,
        error: failed.then(|| record.reason.to_owned()),
    }];
    let mut from = record.arrived;
    let mut step = |name, to: Instant, link| {
        // Clocks of two hosts and a network lie between some of these.
        let to = to.clamp(from, record.ended.max(from));
        spans.push(FinishedSpan {
            ids: Traces::span_of(whole.trace),
            parent: Some(whole.span),
            name,
            serves: false,
            start: record.wall(from),
            end: record.wall(to),
            attributes: Vec::new(),
            link,
            error: None,
        });
        from = to;
    };
    if !is_stage {
        step("decode", record.admitted, None);
    } else if record.admitted > record.arrived {
        step("crop", record.admitted, None);
    }
    match &record.ran {
        _ if record.kind == RecordKind::Pipeline => {}
        Some(ran) => {
            step("queue", ran.before(ran.run.planned_us), None);
            step("transfer", ran.before(ran.run.inputs_us), None);
            step("window", ran.before(ran.run.started_us), None);
            step("execution", ran.before(ran.run.ended_us), Some(batch_spans::ids(&record.cluster, &ran.run)));
            step("reply", record.ended, None);
        }
        None if record.request.is_some() => step("queue", record.ended, None),
        None => {}
    }
    spans
}

fn attributes(record: &RequestRecord<'_>) -> Vec<(&'static str, String)> {
    let mut all = vec![("symphony.model", record.model.to_owned()), ("symphony.outcome", record.outcome.to_owned())];
    let mut some = |key, value: &str| {
        if !value.is_empty() {
            all.push((key, value.to_owned()));
        }
    };
    if let RecordKind::Stage(stage) = record.kind {
        some("symphony.stage", stage);
    }
    some("symphony.reason", record.reason);
    some("symphony.client_id", &record.context.id);
    some("symphony.tenant", record.context.caller.name());
    some("symphony.request", &record.request.map(|id| id.to_string()).unwrap_or_default());
    some("symphony.cluster", &record.cluster);
    some("symphony.subcluster", &record.subcluster);
    some("symphony.backend", &record.backend);
    if let Some(ran) = &record.ran {
        some("symphony.gpu", &ran.run.gpu.to_string());
        some("symphony.batch", &ran.batch.to_string());
    }
    all.push(("symphony.items", record.items.to_string()));
    all
}
