use std::io::Write;
use std::sync::mpsc;
use std::time::SystemTime;

use symphony_protocol::data::BatchRun;
use symphony_telemetry::SpanIds;
use symphony_types::{BackendId, BootId, FrontendId, GpuId, Nanos, RequestId, Token};

use super::*;
use crate::oip::{Caller, RequestContext};

const MS: Duration = Duration::from_millis(1);

/// Taken in after 1 ms, answered after 20: its plan came at 6 ms, its inputs at 8, and it ran from 10 to 15.
fn answered<'a>(context: &'a RequestContext, arrived: Instant) -> RequestRecord<'a> {
    let run = BatchRun {
        gpu: GpuId::new(4),
        token: Token::new(9),
        plan: 3,
        planned_us: 13_000,
        inputs_us: 11_000,
        started_us: 9_000,
        ended_us: 4_000,
    };
    let at = arrived + 19 * MS;
    RequestRecord {
        kind: RecordKind::Model,
        request: Some(RequestId { frontend: FrontendId::new(1), boot: BootId::new(0xab), sequence: 7 }),
        context,
        model: "m",
        items: 2,
        outcome: "in_time",
        reason: "",
        arrived,
        admitted: arrived + MS,
        ended: arrived + 20 * MS,
        ended_at: SystemTime::UNIX_EPOCH + Duration::from_secs(1000),
        cluster: "blue".to_owned(),
        subcluster: "pool".to_owned(),
        ran: Some(Ran { batch: 8, execution: Nanos::from_millis(5), run, backend: Some(BackendId::new(2)), at }),
        backend: "b-1".to_owned(),
        span: Some(RequestSpan { context: TraceContext { trace: 0xabc, span: 0xdef, sampled: true }, parent: Some(1) }),
    }
}

/// Standard output, in lines.
struct Lines(mpsc::Sender<String>, Vec<u8>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.1.extend_from_slice(bytes);
        while let Some(end) = self.1.iter().position(|&byte| byte == b'\n') {
            let line = self.1.drain(..=end).collect();
            self.0.send(String::from_utf8(line).unwrap()).map_err(std::io::Error::other)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_request_is_a_line_that_says_who_what_where_and_how_long() {
    let (sender, lines) = mpsc::channel();
    let log = AccessLog::start(Lines(sender, Vec::new()), &Registry::new("test"));
    let context = RequestContext::of(Caller::anonymous(), "order-\"17\"\n", None);
    let record = answered(&context, Instant::now());
    log.write(&record);
    log.write(&RequestRecord {
        request: None,
        outcome: "refused",
        reason: "no_gpu",
        ran: None,
        span: None,
        backend: String::new(),
        ..record
    });
    let next = || -> serde_json::Value {
        let line = lines.recv_timeout(Duration::from_secs(60)).unwrap();
        serde_json::from_str(&line).unwrap()
    };
    let line = next();
    for (key, value) in [
        ("client_id", "order-\"17\"\n"),
        ("request", "f1/ab/7"),
        ("model", "m"),
        ("outcome", "in_time"),
        ("subcluster", "pool"),
        ("backend", "b-1"),
        ("gpu", "g4"),
        ("trace", "00000000000000000000000000000abc"),
    ] {
        assert_eq!(line[key], value, "{line}");
    }
    assert_eq!((&line["latency_ms"], &line["execution_ms"], &line["batch"]), (&20.0.into(), &5.0.into(), &8.into()));
    assert_eq!(line["at_unix_ms"], 1_000_000);
    let refused = next();
    assert_eq!((&refused["outcome"], &refused["reason"]), (&"refused".into(), &"no_gpu".into()));
    assert!(refused["request"].is_null() && refused["batch"].is_null(), "{refused}");
}

#[test]
fn the_steps_of_a_request_follow_each_other_and_its_batch_is_linked() {
    let (context, arrived) =
        (RequestContext::of(Caller::anonymous(), "mine", None), Instant::now() + Duration::from_secs(1));
    let record = answered(&context, arrived);
    let span = record.span.unwrap();
    let spans = request_spans::of(&record, span);
    let names: Vec<_> = spans.iter().map(|span| span.name).collect();
    assert_eq!(names, ["infer", "decode", "queue", "transfer", "window", "execution", "reply"]);
    let millis =
        |span: &symphony_telemetry::FinishedSpan| span.end.duration_since(span.start).unwrap().as_secs_f64() * 1e3;
    let took: Vec<_> = spans.iter().map(|span| millis(span).round()).collect();
    assert_eq!(took, [20.0, 1.0, 5.0, 2.0, 2.0, 5.0, 5.0]);
    for pair in spans[1..].windows(2) {
        assert_eq!(pair[0].end, pair[1].start);
    }
    assert_eq!((spans[0].parent, spans[0].ids.span, spans[0].serves), (Some(1), 0xdef, true));
    assert!(spans[1..].iter().all(|span| span.parent == Some(0xdef) && span.ids.trace == 0xabc));
    assert!(spans[0].attributes.contains(&("symphony.client_id", "mine".to_owned())), "{:?}", spans[0].attributes);
    let batches = BatchSpans::default();
    let batch = batches.of(&record, record.ran.as_ref().unwrap()).unwrap();
    assert_eq!((spans[5].link, batch.name, millis(&batch).round()), (Some(batch.ids), "batch", 5.0));
    assert!(batches.of(&record, record.ran.as_ref().unwrap()).is_none(), "once is enough");
    let other = Ran { run: BatchRun { plan: 4, ..record.ran.unwrap().run }, ..record.ran.unwrap() };
    assert_ne!(batches.of(&record, &other).unwrap().ids, batch.ids);
    // Frontends of two releases find them alike.
    let ids = SpanIds { trace: 0x70bd_2996_149d_b80d_983d_89a1_ec70_a0ce, span: 0xfa74_b07d_94bf_4821 };
    assert_eq!(batch.ids, ids);
}

#[test]
fn what_was_dropped_waited_until_then_and_says_why() {
    let (context, arrived) =
        (RequestContext::of(Caller::anonymous(), "", None), Instant::now() + Duration::from_secs(1));
    let record = RequestRecord { outcome: "dropped", reason: "shed", ran: None, ..answered(&context, arrived) };
    let spans = request_spans::of(&record, record.span.unwrap());
    let names: Vec<_> = spans.iter().map(|span| span.name).collect();
    assert_eq!((names, spans[0].error.as_deref()), (vec!["infer", "decode", "queue"], Some("shed")));
    assert_eq!(spans[2].end, spans[0].end);
}

#[test]
fn a_pipeline_has_a_span_and_each_stage_request_one_below_it() {
    let (context, arrived) =
        (RequestContext::of(Caller::anonymous(), "", None), Instant::now() + Duration::from_secs(1));
    let whole = RequestRecord { kind: RecordKind::Pipeline, ran: None, ..answered(&context, arrived) };
    let names = |spans: &[symphony_telemetry::FinishedSpan]| spans.iter().map(|span| span.name).collect::<Vec<_>>();
    let spans = request_spans::of(&whole, whole.span.unwrap());
    assert_eq!(names(&spans), ["infer", "decode"], "what it waited for is told by its stages");

    let span = whole.span.unwrap().below();
    let at_once = RequestRecord { admitted: arrived, ..answered(&context, arrived) };
    let stage = RequestRecord { kind: RecordKind::Stage("detect"), span: Some(span), ..at_once };
    let spans = request_spans::of(&stage, span);
    assert_eq!(names(&spans), ["stage", "queue", "transfer", "window", "execution", "reply"]);
    assert_eq!((spans[0].parent, spans[0].serves, spans[0].ids.trace), (Some(0xdef), false, 0xabc));
    assert!(spans[1..].iter().all(|step| step.parent == Some(spans[0].ids.span)), "{spans:?}");
    assert!(spans[0].attributes.contains(&("symphony.stage", "detect".to_owned())), "{:?}", spans[0].attributes);
    assert_ne!(stage.span.unwrap().below().context.span, span.context.span, "each has its own");
    // It waited for its region.
    let spans = request_spans::of(&RequestRecord { admitted: arrived + MS, ..stage }, span);
    assert_eq!(names(&spans[..3]), ["stage", "crop", "queue"]);
    assert_eq!((spans[0].start, spans[1].end), (spans[1].start, spans[2].start));
}

/// A pipe that is full.
struct Full(mpsc::Receiver<()>);
impl Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        self.0.recv().map_err(std::io::Error::other)?;
        Ok(0)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_last_lines_are_written_and_nobody_waits_long_for_a_reader_that_has_stopped() {
    let context = RequestContext::of(Caller::anonymous(), "", None);
    let record = answered(&context, Instant::now());
    let (sender, lines) = mpsc::channel();
    let log = AccessLog::start(Lines(sender, Vec::new()), &Registry::new("test"));
    (0..100).for_each(|_| log.write(&record));
    log.finish(Duration::from_secs(60));
    assert_eq!(lines.try_iter().count(), 100);

    let (reader, full) = mpsc::channel();
    let log = AccessLog::start(Full(full), &Registry::new("test"));
    log.write(&record);
    log.finish(MS);
    drop(reader);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_have_so_many_requests_traced_and_what_is_not_traced_is_not_written_down() {
    let records = Records::default();
    records.trace_by(Arc::new(Traces::start("http://127.0.0.1:1", 0.0, "symphony-test", "t").unwrap()));
    assert!(!records.wants(records.span(None)), "nobody asked for it");
    let (given, began) = (TraceContext { trace: 7, span: 8, sampled: true }, Instant::now());
    assert!(records.wants(records.span(Some(given))));
    let traced = (0..100_000).filter(|_| records.span(Some(given)).is_some()).count();
    let may = GIVEN_PER_SECOND_MAX * (1.0 + began.elapsed().as_secs_f64()) + 1.0;
    assert!(traced > 10 && traced as f64 <= may, "{traced} of {may}");
}
