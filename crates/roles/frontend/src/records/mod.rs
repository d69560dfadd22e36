//! Records of single requests, where configured: lines of the access log, and traces. Both are made at a request's
//! outcome, of what is known then; nothing is recorded on its way. The outcomes of the last requests for pipelines are
//! always remembered.

mod access_log;
mod batch_spans;
pub(crate) mod pipeline_memory;
mod request_record;
mod request_spans;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use symphony_quotas::TokenBucket;
use symphony_telemetry::{Registry, SpanIds, TraceContext, Traces};
use symphony_types::{Nanos, Time};

use access_log::AccessLog;
use batch_spans::BatchSpans;
pub(crate) use request_record::{Ran, RecordKind, RequestRecord};

/// How long the last lines of the access log may take.
const LINES_WRITTEN_WITHIN: Duration = Duration::from_millis(500);
/// Requests that are traced in a second because their clients ask for it, in the mean: each has eight spans or so, and
/// every client may ask for a trace.
const GIVEN_PER_SECOND_MAX: f64 = 100.0;

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
    /// What clients may still ask for.
    given: Mutex<TokenBucket>,
    began: Instant,
}

impl Traced {
    /// Whether one more request may be traced because its client asks for it.
    fn takes_one_more(&self) -> bool {
        let now = Time::ZERO + Nanos::from(self.began.elapsed());
        self.given.lock().unwrap_or_else(PoisonError::into_inner).take(now, 1.0).is_ok()
    }
}

impl Records {
    /// With an access log on standard output, if it is wanted.
    pub(crate) fn new(access_log: bool, registry: &Registry) -> Self {
        let access = access_log.then(|| AccessLog::start(std::io::stdout(), registry));
        Self { access, traces: OnceLock::new() }
    }

    /// Traces requests from now on. Only the first one counts.
    pub(crate) fn trace_by(&self, traces: Arc<Traces>) {
        let given = Mutex::new(TokenBucket::full(Time::ZERO, GIVEN_PER_SECOND_MAX));
        let _ = self.traces.set(Traced { traces, batches: BatchSpans::default(), given, began: Instant::now() });
    }

    /// Whether anything is written down of a request that has this span, or none.
    pub(crate) const fn wants(&self, span: Option<RequestSpan>) -> bool {
        self.access.is_some() || span.is_some()
    }

    /// The span of a request whose client sent `given`, with the client's span; none if it is not traced.
    pub(crate) fn span(&self, given: Option<TraceContext>) -> Option<RequestSpan> {
        let traced = self.traces.get()?;
        if given.is_some_and(|given| given.sampled) && !traced.takes_one_more() {
            return None;
        }
        let context = traced.traces.context(given)?;
        let own = Traces::span_of(context.trace).span;
        Some(RequestSpan {
            context: TraceContext { span: own, ..context },
            parent: (context.span != 0).then_some(context.span),
        })
    }

    /// A request has its outcome.
    pub(crate) fn ended(&self, record: &RequestRecord<'_>) {
        if let Some(access) = self.access.as_ref().filter(|_| !matches!(record.kind, RecordKind::Stage(_))) {
            access.write(record);
        }
        if let (Some(Traced { traces, batches, .. }), Some(span)) = (self.traces.get(), record.span) {
            traces.send(request_spans::of(record, span));
            traces.send(record.ran.as_ref().and_then(|ran| batches.of(record, ran)));
        }
    }

    /// Writes and sends the remaining records. Later ones are lost.
    pub(crate) fn finish(&self) {
        if let Some(access) = &self.access {
            access.finish(LINES_WRITTEN_WITHIN);
        }
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

impl RequestSpan {
    /// A new span under it.
    pub(crate) fn below(&self) -> Self {
        let SpanIds { span, .. } = Traces::span_of(self.context.trace);
        Self { context: TraceContext { span, ..self.context }, parent: Some(self.context.span) }
    }
}

#[cfg(test)]
mod tests;
