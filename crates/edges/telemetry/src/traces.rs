//! Traces of requests, sent to a collector of the OpenTelemetry protocol over gRPC.
//!
//! Spans are built at a request's outcome, from what is known then. The code that admits a request asks
//! [`Traces::context`] whether it is traced at all; its spans then go through [`Traces::send`], which never waits.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanEvents, SpanExporter as Export, SpanLinks, SpanProcessor,
};
use prometheus_client::metrics::counter::Counter;

/// The name and metadata key by which W3C's trace context travels.
pub const TRACEPARENT: &str = "traceparent";

/// Spans that wait for the collector: some seconds of them, and about a megabyte. What comes beyond is lost.
const SPANS_WAITING_MAX: usize = 2048;

/// Why traces cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error(
    "telemetry.otlp_endpoint: cannot send traces to {endpoint}: {reason}; expected http://host:port of a collector that speaks OTLP over gRPC"
)]
pub struct TraceError {
    endpoint: String,
    reason: String,
}

/// A request's place in a trace, as W3C's `traceparent` says it: version 00, ids, and whether the trace is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Id of the trace; never 0.
    pub trace: u128,
    /// The caller's span.
    pub span: u64,
    /// Whether its spans are kept.
    pub sampled: bool,
}

/// Text that is no [`TraceContext`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTraceContext;

impl FromStr for TraceContext {
    type Err = NoTraceContext;

    fn from_str(text: &str) -> Result<Self, NoTraceContext> {
        let hex = |part: &str, length: usize| {
            let is = part.len() == length && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            if is { u128::from_str_radix(part, 16).map_err(|_| NoTraceContext) } else { Err(NoTraceContext) }
        };
        let mut parts = text.splitn(5, '-');
        let mut next = |length| parts.next().ok_or(NoTraceContext).and_then(|part| hex(part, length));
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        // Later versions may say more behind what is known; version ff is none, and ids of zeros are invalid.
        let ends = version != 0 || parts.next().is_none();
        if version == 0xff || trace == 0 || span == 0 || !ends {
            return Err(NoTraceContext);
        }
        Ok(Self { trace, span: span as u64, sampled: flags & 1 == 1 })
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

/// Which span of which trace it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanIds {
    /// Id of the trace.
    pub trace: u128,
    /// Itself.
    pub span: u64,
}

/// A span that is over.
#[derive(Clone, Debug)]
pub struct FinishedSpan {
    /// Its own ids.
    pub ids: SpanIds,
    /// The span above it; none if it is the first of its trace.
    pub parent: Option<u64>,
    /// The name of the span, as traces show it.
    pub name: &'static str,
    /// Whether it answers a call from outside.
    pub serves: bool,
    /// When it began.
    pub start: SystemTime,
    /// When it ended.
    pub end: SystemTime,
    /// What is to be known of it.
    pub attributes: Vec<(&'static str, String)>,
    /// A span of another trace that it has to do with.
    pub link: Option<SpanIds>,
    /// Why it failed; none if it did not.
    pub error: Option<String>,
}

/// Spans on their way to the collector.
#[derive(Debug, Default)]
struct Underway {
    waiting: AtomicUsize,
    lost: Counter,
}

impl Underway {
    /// Whether there is room for one more. The processor's own queue has as much, but does not report what it loses.
    fn takes_one_more(&self) -> bool {
        let takes = self.waiting.fetch_add(1, Ordering::Relaxed) < SPANS_WAITING_MAX;
        if !takes {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.lost.inc();
        }
        takes
    }
}

/// Counts what does not arrive.
#[derive(Debug)]
struct Counting {
    exporter: SpanExporter,
    underway: Arc<Underway>,
}

impl Export for Counting {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.underway.waiting.fetch_sub(spans, Ordering::Relaxed);
        let sent = self.exporter.export(batch).await;
        if sent.is_err() {
            self.underway.lost.inc_by(spans as u64);
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// Sends the traces of a process.
#[derive(Debug)]
pub struct Traces {
    processor: BatchSpanProcessor,
    underway: Arc<Underway>,
    scope: InstrumentationScope,
    sample_ratio: f64,
}

impl Traces {
    /// For the collector at `endpoint` (`http://host:port`), as the service `service` and its instance. A collector that
    /// is not there costs traces and nothing else. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// If that is no endpoint.
    pub fn start(endpoint: &str, sample_ratio: f64, service: &'static str, instance: &str) -> Result<Self, TraceError> {
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build();
        let exporter =
            exporter.map_err(|error| TraceError { endpoint: endpoint.to_owned(), reason: error.to_string() })?;
        let underway = Arc::<Underway>::default();
        let exporter = Counting { exporter, underway: Arc::clone(&underway) };
        let queue = BatchConfigBuilder::default().with_max_queue_size(SPANS_WAITING_MAX).build();
        let mut processor = BatchSpanProcessor::builder(exporter).with_batch_config(queue).build();
        let facts = [
            KeyValue::new("service.instance.id", instance.to_owned()),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        ];
        processor.set_resource(&Resource::builder().with_service_name(service).with_attributes(facts).build());
        let scope = InstrumentationScope::builder("symphony").with_version(env!("CARGO_PKG_VERSION")).build();
        Ok(Self { processor, underway, scope, sample_ratio })
    }

    /// The context of the spans of a request whose client sent `given`: the client decides whether it is traced;
    /// without a word of it, one in this many is. None if it is not traced.
    #[must_use]
    pub fn context(&self, given: Option<TraceContext>) -> Option<TraceContext> {
        match given {
            Some(given) => given.sampled.then_some(given),
            None if rand::random::<f64>() < self.sample_ratio => {
                Some(TraceContext { trace: rand::random_range(1..=u128::MAX), span: 0, sampled: true })
            }
            None => None,
        }
    }

    /// A new span of a trace.
    #[must_use]
    pub fn span_of(trace: u128) -> SpanIds {
        SpanIds { trace, span: rand::random_range(1..=u64::MAX) }
    }

    /// Spans that did not reach the collector: it is away, or does not take them as fast as they come.
    #[must_use]
    pub fn lost(&self) -> Counter {
        self.underway.lost.clone()
    }

    /// Sends spans soon. What the collector does not take as fast as it comes is lost, and counted.
    pub fn send(&self, spans: impl IntoIterator<Item = FinishedSpan>) {
        for span in spans {
            if self.underway.takes_one_more() {
                self.processor.on_end(self.data(span));
            }
        }
    }

    /// Sends what is left, and ends. It may take seconds, if the collector does not answer.
    pub fn finish(&self) {
        if let Err(error) = self.processor.shutdown() {
            tracing::debug!(%error, "the last traces were not sent");
        }
    }

    fn data(&self, span: FinishedSpan) -> SpanData {
        let FinishedSpan { ids, parent, name, serves, start, end, attributes, link, error } = span;
        let mut links = SpanLinks::default();
        links.links.extend(link.map(|ids| Link::with_context(context(ids))));
        SpanData {
            span_context: context(ids),
            parent_span_id: parent.map_or(SpanId::INVALID, SpanId::from),
            parent_span_is_remote: serves && parent.is_some(),
            span_kind: if serves { SpanKind::Server } else { SpanKind::Internal },
            name: name.into(),
            start_time: start,
            end_time: end.max(start),
            attributes: attributes.into_iter().map(|(key, value)| KeyValue::new(key, Value::from(value))).collect(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status: error.map_or(Status::Unset, Status::error),
            instrumentation_scope: self.scope.clone(),
        }
    }
}

fn context(SpanIds { trace, span }: SpanIds) -> SpanContext {
    let (trace, span) = (TraceId::from(trace), SpanId::from(span));
    SpanContext::new(trace, span, TraceFlags::SAMPLED, false, TraceState::default())
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
    use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::TcpListenerStream;

    use super::*;

    struct Collector(mpsc::UnboundedSender<ExportTraceServiceRequest>);

    #[tonic::async_trait]
    impl TraceService for Collector {
        async fn export(
            &self,
            request: tonic::Request<ExportTraceServiceRequest>,
        ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
            let _ = self.0.send(request.into_inner());
            Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
        }
    }

    #[test]
    fn a_traceparent_is_read_and_written_and_what_is_none_is_not() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent: TraceContext = text.parse().unwrap();
        assert!(parent.sampled && parent.span == 0x00f0_67aa_0ba9_02b7);
        assert_eq!(parent.to_string(), text);
        assert!(!text.replace("-01", "-00").parse::<TraceContext>().unwrap().sampled);
        // A later version may say more.
        assert!(format!("01{}-more", &text[2..]).parse::<TraceContext>().is_ok());
        let zeros = |at: usize, length: usize| format!("{}{}{}", &text[..at], "0".repeat(length), &text[at + length..]);
        let wrong = [
            "".to_owned(),
            "00".to_owned(),
            format!("{text}-more"),
            format!("ff{}", &text[2..]),
            text.to_uppercase(),
            text[..54].to_owned(),
            zeros(3, 32),
            zeros(36, 16),
            text.replace('4', "+"),
            text.replace('4', "ä"),
        ];
        for wrong in wrong {
            assert_eq!(wrong.parse::<TraceContext>(), Err(NoTraceContext), "{wrong}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_client_decides_and_otherwise_so_many_are_traced() {
        let traces = |ratio| Traces::start("http://127.0.0.1:1", ratio, "symphony-test", "t").unwrap();
        let given = |sampled| Some(TraceContext { trace: 7, span: 8, sampled });
        for ratio in [0.0, 1.0] {
            let traces = traces(ratio);
            assert_eq!(traces.context(given(true)), given(true), "ratio {ratio}");
            assert_eq!(traces.context(given(false)), None, "ratio {ratio}");
            assert_eq!(traces.context(None).is_some(), ratio > 0.5);
        }
        let half = traces(0.5);
        let traced = (0..1000).filter(|_| half.context(None).is_some()).count();
        assert!((300..700).contains(&traced), "{traced}");
        assert!(Traces::start("no endpoint at all", 1.0, "symphony-test", "t").is_err());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_collector_gets_spans_as_they_were() {
        let (sender, mut received) = mpsc::unbounded_channel();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let collector = tonic::transport::Server::builder().add_service(TraceServiceServer::new(Collector(sender)));
        tokio::spawn(collector.serve_with_incoming(TcpListenerStream::new(listener)));

        let traces = Arc::new(Traces::start(&endpoint, 1.0, "symphony-test", "t-1").unwrap());
        let (start, batch) = (SystemTime::UNIX_EPOCH + Duration::from_secs(1_000), SpanIds { trace: 5, span: 6 });
        traces.send([FinishedSpan {
            ids: SpanIds { trace: 0xabc, span: 0xdef },
            parent: Some(0x123),
            name: "infer",
            serves: true,
            start,
            end: start + Duration::from_millis(3),
            attributes: vec![("symphony.model", "m".to_owned())],
            link: Some(batch),
            error: Some("late".to_owned()),
        }]);
        let ended = Arc::clone(&traces);
        tokio::task::spawn_blocking(move || ended.finish()).await.unwrap();
        let exported = tokio::time::timeout(Duration::from_secs(60), received.recv()).await.unwrap().unwrap();
        let of = &exported.resource_spans[0];
        let facts = format!("{:?}", of.resource);
        assert!(facts.contains("symphony-test") && facts.contains("t-1"), "{facts}");
        let span = &of.scope_spans[0].spans[0];
        assert_eq!((span.name.as_str(), span.kind), ("infer", 2), "a server's");
        assert_eq!(span.trace_id, 0xabc_u128.to_be_bytes());
        assert_eq!(
            (&span.span_id[..], &span.parent_span_id[..]),
            (&0xdef_u64.to_be_bytes()[..], &0x123_u64.to_be_bytes()[..])
        );
        assert_eq!(span.end_time_unix_nano - span.start_time_unix_nano, 3_000_000);
        assert_eq!(
            (&span.links[0].trace_id[..], &span.links[0].span_id[..]),
            (&5_u128.to_be_bytes()[..], &6_u64.to_be_bytes()[..])
        );
        assert_eq!(span.status.as_ref().unwrap().message, "late");
        assert_eq!(span.attributes[0].key, "symphony.model");
    }

    fn span(span: u64) -> FinishedSpan {
        FinishedSpan {
            ids: SpanIds { trace: 1, span },
            parent: None,
            name: "infer",
            serves: true,
            start: SystemTime::UNIX_EPOCH,
            end: SystemTime::UNIX_EPOCH,
            attributes: Vec::new(),
            link: None,
            error: None,
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_no_collector_takes_is_counted_as_lost() {
        let traces = Arc::new(Traces::start("http://127.0.0.1:1", 1.0, "symphony-test", "t").unwrap());
        traces.send((1..4).map(span));
        let ended = Arc::clone(&traces);
        tokio::task::spawn_blocking(move || ended.finish()).await.unwrap();
        assert_eq!(traces.lost().get(), 3);

        // A collector that accepts and never answers: what is beyond the queue and one export is lost at once.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", silent.local_addr().unwrap());
        let traces = Traces::start(&endpoint, 1.0, "symphony-test", "t").unwrap();
        let many = 4 * SPANS_WAITING_MAX as u64;
        traces.send((1..=many).map(span));
        let lost = traces.lost().get();
        assert!(lost >= many / 2 && lost < many, "{lost} of {many}");
    }
}
