//! What is written down of single requests, if anybody asked for it: lines of the access log, and traces. Both are made
//! at a request's outcome, of what is known then; nothing is recorded on its way.

mod access_log;
mod batch_spans;
mod request_record;
mod request_spans;

use std::sync::{Arc, OnceLock};

use symphony_telemetry::{Registry, TraceContext, Traces};

use access_log::AccessLog;
use batch_spans::BatchSpans;
pub(crate) use request_record::{Ran, RequestRecord};

/// Where requests are written down.
#[derive(Debug, Default)]
pub(crate) struct Records {
    access: Option<AccessLog>,
    traces: OnceLock<Traced>,
}

#[derive(Debug)]
struct Traced {
    traces: Arc<Traces>,
    batches: BatchSpans,
}

impl Records {
    /// With an access log on standard output, if it is wanted.
    pub(crate) fn new(access_log: bool, registry: &Registry) -> Self {
        let access = access_log.then(|| AccessLog::start(std::io::stdout(), registry));
        Self { access, traces: OnceLock::new() }
    }

    /// Traces requests from now on. Only the first one counts.
    pub(crate) fn trace_by(&self, traces: Arc<Traces>) {
        let _ = self.traces.set(Traced { traces, batches: BatchSpans::default() });
    }

    /// Whether anything is written down at all.
    pub(crate) fn are_on(&self) -> bool {
        self.access.is_some() || self.traces.get().is_some()
    }

    /// The span of a request whose client sent `given`, with the client's span; none if it is not traced.
    pub(crate) fn span(&self, given: Option<TraceContext>) -> Option<RequestSpan> {
        let context = self.traces.get()?.traces.context(given)?;
        let own = Traces::span_of(context.trace).span;
        Some(RequestSpan {
            context: TraceContext { span: own, ..context },
            parent: (context.span != 0).then_some(context.span),
        })
    }

    /// A request has its outcome.
    pub(crate) fn ended(&self, record: &RequestRecord<'_>) {
        if let Some(access) = &self.access {
            access.write(record);
        }
        if let (Some(Traced { traces, batches }), Some(span)) = (self.traces.get(), record.span) {
            traces.send(request_spans::of(record, span));
            traces.send(record.ran.as_ref().and_then(|ran| batches.of(record, ran)));
        }
    }

    /// Sends what is left.
    pub(crate) fn finish(&self) {
        if let Some(Traced { traces, .. }) = self.traces.get() {
            traces.finish();
        }
    }
}

/// A request's span, and its client's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestSpan {
    pub(crate) context: TraceContext,
    pub(crate) parent: Option<u64>,
}

#[cfg(test)]
mod tests;
