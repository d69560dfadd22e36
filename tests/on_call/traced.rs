//! A request can be followed: by the trace that its client has begun, and by its line in the access log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::{Value, json};
use symphony_testkit::wait_until;
use symphony_tests::{Shape, emulated_model, numbers, phase, tell};
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;

/// How long something may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// The trace and the span of the client.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: u64 = 0x00f0_67aa_0ba9_02b7;

/// Keeps the spans that come, until it is full.
struct Collector {
    spans: watch::Sender<Vec<Span>>,
    full: Arc<AtomicBool>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        if self.full.load(Ordering::Relaxed) {
            return Err(tonic::Status::resource_exhausted("no room for more"));
        }
        let scopes = request.into_inner().resource_spans.into_iter().flat_map(|of| of.scope_spans);
        self.spans.send_modify(|all| all.extend(scopes.flat_map(|scope| scope.spans)));
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

#[test]
fn a_trace_goes_on_through_the_frontend_and_a_line_is_logged() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (spans, came) = watch::channel(Vec::new());
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let collector = listener.local_addr().unwrap();
    let full = Arc::<AtomicBool>::default();
    let service = TraceServiceServer::new(Collector { spans, full: Arc::clone(&full) });
    let server = tonic::transport::Server::builder().add_service(service);
    runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let mut shape = Shape::emulated(&["pool"])
        .with(&format!("telemetry.otlp_endpoint=http://{collector}"))
        .with("telemetry.sample_ratio=0.0")
        .with("frontend.access_log=true");
    shape.schedulers = 1;
    tell("traced", &shape, |cluster| {
        full.store(false, Ordering::Relaxed);
        let _ = cluster.cli(&emulated_model("resnet", "pool")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();

        phase("a client that traces sends a request; another one that does not sends one, too");
        let url = format!("http://{}/v2/models/resnet/infer", cluster.address("frontend", "rest"));
        let input = json!({ "name": "INPUT0", "datatype": "FP32", "shape": [1, 16], "data": numbers(1.0) });
        let infer = |id: &str, traceparent: Option<String>| {
            let request = reqwest::Client::new().post(&url).body(json!({ "id": id, "inputs": [input] }).to_string());
            let request = traceparent.into_iter().fold(request, |request, it| request.header("traceparent", it));
            cluster.block_on(async { request.send().await }).unwrap()
        };
        // A machine that pauses may miss a deadline; then it is asked again.
        let answer = wait_until("an answer", SOON, || {
            let answer = infer("order-17", Some(format!("00-{TRACE}-{SPAN:016x}-01")));
            ensure!(answer.status() == 200, "{}", answer.status());
            Ok(answer)
        });
        let answer = answer.unwrap();
        let passed_on = answer.headers().get("traceparent").unwrap().to_str().unwrap().to_owned();
        assert!(passed_on.starts_with(&format!("00-{TRACE}-")) && passed_on.ends_with("-01"), "{passed_on}");
        let request = answer.headers().get("symphony-request-id").unwrap().to_str().unwrap().to_owned();
        let untraced = infer("order-18", None);
        assert!(untraced.headers().get("traceparent").is_none());
        let refused = infer("order-19", Some(format!("00-{TRACE}-{SPAN:016x}-00")));
        assert!(refused.headers().get("traceparent").is_none(), "its client does not want it");

        phase("the collector has its steps under the client's span, and its batch");
        let own = u64::from_str_radix(&passed_on[36..52], 16).unwrap();
        let names = ["infer", "decode", "queue", "transfer", "window", "execution", "reply", "batch"];
        let spans = wait_until("the spans", SOON, || {
            let came = came.borrow().clone();
            // Of attempts that were late there are others.
            let mine: Vec<_> = came
                .iter()
                .filter(|span| {
                    span.span_id == own.to_be_bytes()
                        || span.parent_span_id == own.to_be_bytes()
                        || span.name == "batch"
                })
                .cloned()
                .collect();
            for name in names {
                ensure!(mine.iter().any(|span| span.name == name), "no {name} in {came:?}");
            }
            Ok(mine)
        });
        let spans = spans.unwrap();
        let of = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
        assert_eq!(of("infer").parent_span_id, SPAN.to_be_bytes());
        let steps: Vec<_> = names[1..7].iter().map(|name| of(name)).collect();
        assert!(steps.iter().all(|step| step.trace_id == of("infer").trace_id));
        for pair in steps.windows(2) {
            assert_eq!(pair[0].end_time_unix_nano, pair[1].start_time_unix_nano, "{} {}", pair[0].name, pair[1].name);
        }
        // The profile says 6 ms for one item, and an emulated GPU takes that long.
        let execution = of("execution").end_time_unix_nano - of("execution").start_time_unix_nano;
        assert!(execution > 4_000_000, "{execution} ns");
        let linked = &of("execution").links[0];
        let batch = spans.iter().find(|span| span.name == "batch" && span.span_id == linked.span_id).unwrap();
        assert_eq!(batch.trace_id, linked.trace_id);

        phase("each request is a line of the frontend's standard output");
        let out = cluster.workspace.file("frontend.out");
        let lines = wait_until("the lines", SOON, || {
            let text = std::fs::read_to_string(&out)?;
            let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            ensure!(lines.iter().any(|line| line["client_id"] == "order-19"), "{text}");
            Ok(lines)
        });
        let lines = lines.unwrap();
        let line = lines.iter().find(|line| line["request"] == request.as_str()).context(request.clone()).unwrap();
        assert_eq!((&line["client_id"], &line["model"]), (&json!("order-17"), &json!("resnet")), "{line}");
        assert_eq!((&line["outcome"], &line["reason"]), (&json!("in_time"), &json!("")), "{line}");
        assert_eq!((&line["subcluster"], &line["backend"]), (&json!("pool"), &json!("backend-pool")), "{line}");
        assert_eq!((&line["trace"], &line["batch"]), (&json!(TRACE), &json!(1)), "{line}");
        assert!(line["latency_ms"].as_f64() >= line["execution_ms"].as_f64(), "{line}");
        assert!(lines.iter().any(|line| line["client_id"] == "order-18" && line["trace"].is_null()));

        phase("what is refused has one, too");
        let rubbish = cluster.block_on(async { cluster.rest().post("/v2/models/resnet/infer", "no JSON").await });
        assert_eq!(rubbish.unwrap().status, 400);
        wait_until("its line", SOON, || {
            let text = std::fs::read_to_string(&out)?;
            let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            ensure!(lines.any(|line| line["outcome"] == "refused" && line["reason"] == "invalid_request"), "{text}");
            Ok(())
        })
        .unwrap();
        let labels = "model=\"resnet\",reason=\"invalid_request\",fault=\"client\"";
        let refusal = format!("symphony_frontend_requests_refused_total{{{labels}}} 1");
        cluster.wait_for_metric("frontend", &refusal).unwrap();

        phase("the collector takes no more: spans are lost and counted, and requests are answered");
        cluster.wait_for_metric("frontend", "symphony_frontend_spans_lost_total 0").unwrap();
        full.store(true, Ordering::Relaxed);
        wait_until("another answer", SOON, || {
            let answer = infer("order-20", Some(format!("00-{TRACE}-{SPAN:016x}-01")));
            ensure!(answer.status() == 200, "{}", answer.status());
            Ok(())
        })
        .unwrap();
        wait_until("lost spans in the metrics", SOON, || {
            let scraped = cluster.metrics_of("frontend")?;
            let lost = scraped.lines().find_map(|line| line.strip_prefix("symphony_frontend_spans_lost_total "));
            let lost: f64 = lost.context("no such metric")?.parse()?;
            ensure!(lost > 0.0, "none is lost");
            Ok(())
        })
        .unwrap();
    });
}
