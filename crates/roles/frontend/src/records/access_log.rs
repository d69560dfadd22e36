//! The access log: a line of JSON for each request, on standard output.

use std::io::{BufWriter, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::UNIX_EPOCH;

use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use symphony_telemetry::Registry;

use super::request_record::RequestRecord;
use crate::names;

/// Lines that wait for whoever reads them, about 4 MB. Requests are not held up: a line more is lost, and counted.
const LINES_WAITING_MAX: usize = 16 << 10;

/// Writes lines from a thread of its own.
#[derive(Debug)]
pub(super) struct AccessLog {
    lines: SyncSender<String>,
    lost: Counter,
}

/// A line, as its readers know it: docs/operating/operations.md.
#[derive(Serialize)]
struct Line<'a> {
    at_unix_ms: u64,
    request: Option<String>,
    client_id: &'a str,
    tenant: &'a str,
    model: &'a str,
    items: u32,
    outcome: &'static str,
    reason: &'static str,
    latency_ms: f64,
    batch: Option<u32>,
    execution_ms: Option<f64>,
    cluster: &'a str,
    subcluster: &'a str,
    backend: &'a str,
    gpu: Option<String>,
    trace: Option<String>,
}

impl AccessLog {
    pub(super) fn start(out: impl Write + Send + 'static, registry: &Registry) -> Self {
        let (lines, waiting) = sync_channel(LINES_WAITING_MAX);
        let lost = registry.register(&names::ACCESS_LINES_LOST, Counter::default());
        let thread = std::thread::Builder::new().name("access-log".into()).spawn(move || write_all(&waiting, out));
        if let Err(error) = thread {
            tracing::error!(%error, "no thread for the access log: nothing is logged");
        }
        Self { lines, lost }
    }

    pub(super) fn write(&self, record: &RequestRecord<'_>) {
        let millis = |seconds: f64| (seconds * 1e6).round() / 1e3;
        let line = Line {
            at_unix_ms: record.ended_at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
            request: record.request.map(|id| id.to_string()),
            client_id: &record.context.id,
            tenant: record.context.caller.name(),
            model: record.model,
            items: record.items,
            outcome: record.outcome,
            reason: record.reason,
            latency_ms: millis(record.latency().as_secs_f64()),
            batch: record.ran.map(|ran| ran.batch),
            execution_ms: record.ran.map(|ran| millis(ran.execution.as_secs_f64())),
            cluster: &record.cluster,
            subcluster: &record.subcluster,
            backend: &record.backend,
            gpu: record.ran.map(|ran| ran.run.gpu.to_string()),
            trace: record.span.map(|span| format!("{:032x}", span.context.trace)),
        };
        // Texts and numbers in memory always serialise.
        let Ok(text) = serde_json::to_string(&line) else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.lines.try_send(text) {
            self.lost.inc();
        }
    }
}

/// Writes until the log is gone, or nobody reads it any more.
fn write_all(waiting: &Receiver<String>, out: impl Write) {
    let mut out = BufWriter::new(out);
    while let Ok(first) = waiting.recv() {
        let mut lines = std::iter::once(first).chain(waiting.try_iter());
        let written = lines.try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush());
        if let Err(error) = written {
            return tracing::error!(%error, "the access log cannot be written and ends");
        }
    }
}
